"""What follows when the shop's rows are saved."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver

from testproject.shop.models import Invoice
from testproject.shop.tasks import send_invoice


@receiver(post_save, sender=Invoice)
def send_new_invoice(instance: Invoice, created: bool, **kwargs: Any) -> None:
    """Enqueue the mail in the transaction that saves the invoice: both are kept, or neither."""
    if created:
        send_invoice.enqueue(instance.pk)
