"""Chaos as a Django app: the tables that its work writes to."""

from __future__ import annotations

from django.apps import AppConfig


class ChaosConfig(AppConfig):
    """Tasks are found in `tasks`, which loads every kind of work."""

    name = "testproject.chaos"
    label = "chaos"
