"""The shop as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """Connect the shop's signals when Django is ready."""

    name = "testproject.shop"
    label = "shop"

    def ready(self) -> None:
        from testproject.shop import signals  # noqa: F401
