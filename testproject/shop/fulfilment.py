"""What happens to an order, step by step. Each function here is a step of `tasks.fulfil_order`, or undoes one.

A step may be called again after a crash, so each either asks an outside system with an idempotency key, or writes in
the transaction that keeps its result (`atomic=True`).
"""

from __future__ import annotations

from django.core.mail import send_mail
from django.db.models import F

from django_reliable_jobs import Fail, current_job
from testproject.shop import payments
from testproject.shop.models import Order, Shipment, Stock


def charge_card(order_id: int) -> int:
    """Charge the customer's card; return the payment's number."""
    order = Order.objects.get(pk=order_id)
    key = current_job().idempotency_key("charge")
    return payments.charge(order_id=order_id, amount=order.compute_total(), card=order.card, key=key)


def refund(payment_id: int, order_id: int) -> None:
    """Give the money back."""
    payments.refund(payment_id, key=current_job().idempotency_key("refund"))


def reserve_stock(order_id: int) -> list[int]:
    """Take what the order needs from the stock; return the numbers of its lines."""
    lines = list(Order.objects.get(pk=order_id).lines.order_by("product"))
    for line in lines:
        enough = Stock.objects.filter(product=line.product, quantity__gte=line.quantity)
        if not enough.update(quantity=F("quantity") - line.quantity):
            raise Fail(f"there is not enough of {line.product!r} for order {order_id}")
    return [line.pk for line in lines]


def put_back_stock(line_ids: list[int], order_id: int) -> None:
    """Put back what the order had taken."""
    for line in Order.objects.get(pk=order_id).lines.filter(pk__in=line_ids).order_by("product"):
        Stock.objects.filter(product=line.product).update(quantity=F("quantity") + line.quantity)


def ask_warehouse(order_id: int) -> int:
    """Ask the warehouse to ship; return the shipment's number."""
    shipment, _ = Shipment.objects.get_or_create(order_id=order_id, cancelled=False)
    return shipment.pk


def stop_shipment(shipment_id: int, order_id: int) -> None:
    """Tell the warehouse to keep it."""
    Shipment.objects.filter(pk=shipment_id).update(cancelled=True)


def mail_tracking(order_id: int, tracking: str) -> None:
    """Tell the customer where the parcel is."""
    Shipment.objects.filter(order_id=order_id, cancelled=False).update(tracking=tracking)
    order = Order.objects.select_related("customer").get(pk=order_id)
    send_mail(
        subject=f"Order {order_id} is on its way",
        message=f"Dear {order.customer.name},\n\nfollow it with the number {tracking}.\n",
        from_email=None,
        recipient_list=[order.customer.email],
    )
