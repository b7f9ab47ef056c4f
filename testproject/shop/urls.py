"""The shop's addresses."""

from __future__ import annotations

from django.urls import path

from testproject.shop.views import place_order, shipped

urlpatterns = [
    path("", place_order, name="place-order"),
    path("shipments/<int:order_id>/", shipped, name="shipped"),
]
