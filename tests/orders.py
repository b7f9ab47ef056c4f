"""Orders of the shop, and what became of their money, their goods and their parcels."""

from __future__ import annotations

from decimal import Decimal

from django.test import Client

from django_reliable_jobs.models import Job
from testproject.shop.models import Customer, Order, Payment, Shipment, Stock

STOCK = 1000


def place_order(*, card: str = "works", quantity: int = 3) -> Order:
    """Place an order of a product that is in stock."""
    customer, _ = Customer.objects.get_or_create(email="ada@example.com", defaults={"name": "Ada"})
    Stock.objects.get_or_create(product="Cards", defaults={"quantity": STOCK})
    order = Order.objects.create(customer=customer, card=card)
    order.lines.create(product="Cards", quantity=quantity, unit_price=Decimal("9.50"))
    return order


def ship(order: Order) -> None:
    """Call the webhook, as the parcel service does."""
    answer = Client().post(f"/shipments/{order.pk}/", {"tracking": f"1Z{order.pk}"}, content_type="application/json")
    assert answer.status_code == 204


def money_of(order: Order) -> tuple[int, int]:
    """Return how often the order was charged, and how often refunded."""
    payments = Payment.objects.filter(order_id=order.pk, charged_at__isnull=False)
    return payments.count(), payments.filter(refunded_at__isnull=False).count()


def trackings_of(order: Order) -> list[str]:
    return list(Shipment.objects.filter(order=order, cancelled=False).values_list("tracking", flat=True))


def stock() -> int:
    return Stock.objects.get(product="Cards").quantity


def job_of(order: Order) -> Job:
    return Job.objects.get(task="testproject.shop.tasks.fulfil_order", args__0=order.pk)
