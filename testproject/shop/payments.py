"""A stand-in for a payment provider. Its ledger is a table, and it keeps what every provider keeps: idempotency keys.

Cards: "works"; "declined"; "hangs up" fails twice before it works.
"""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from testproject.shop.models import Payment

HANGS_UP = 2  # requests


class CardDeclined(Exception):
    """There is no money on that card."""


def charge(*, order_id: int, amount: Decimal, card: str, key: str) -> int:
    """Charge the card, once per key whatever the number of requests; return the payment's number."""
    if card == "declined":
        raise CardDeclined(f"the card of order {order_id} was declined")
    payment, _ = Payment.objects.get_or_create(key=key, defaults={"order_id": order_id, "amount": amount})
    _count_request(payment)
    if card == "hangs up" and payment.requests <= HANGS_UP:
        raise ConnectionError("the provider hung up")
    Payment.objects.filter(pk=payment.pk, charged_at=None).update(charged_at=timezone.now())
    return payment.pk


def refund(payment_id: int, *, key: str) -> None:
    """Give the money back, once per key."""
    with transaction.atomic():
        payment = Payment.objects.select_for_update().get(pk=payment_id)
        if payment.refund_key == key:
            return
        if payment.refunded_at is not None:
            raise RuntimeError(f"payment {payment_id} was refunded before, for another reason")
        payment.refund_key, payment.refunded_at = key, timezone.now()
        payment.save(update_fields=["refund_key", "refunded_at"])


def _count_request(payment: Payment) -> None:
    Payment.objects.filter(pk=payment.pk).update(requests=F("requests") + 1)
    payment.refresh_from_db()
