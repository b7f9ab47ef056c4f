"""A small shop: customers place orders, and every order gets one invoice."""

from __future__ import annotations

from decimal import Decimal

from django.db import models
from django.db.models import F, Sum


class Customer(models.Model):
    """Somebody who buys."""

    name = models.CharField(max_length=100)
    email = models.EmailField(unique=True)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """What a customer wants, line by line."""

    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    placed_at = models.DateTimeField(auto_now_add=True)
    card = models.CharField(max_length=20, default="works")

    def __str__(self) -> str:
        return f"Order {self.pk}"

    def compute_total(self) -> Decimal:
        """Add up the order's lines."""
        total = self.lines.aggregate(total=Sum(F("quantity") * F("unit_price")))["total"]
        return total or Decimal(0)


class OrderLine(models.Model):
    """One kind of thing in an order."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField()
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class Invoice(models.Model):
    """What a customer owes for an order.

    The order is unique, so a job that is run twice makes one invoice.
    """

    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="invoice")
    total = models.DecimalField(max_digits=12, decimal_places=2)
    made_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"Invoice for order {self.order_id}"


class Stock(models.Model):
    """How much there is of a product."""

    product = models.CharField(max_length=100, unique=True)
    quantity = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class Payment(models.Model):
    """A line in the ledger of the payment provider, which is elsewhere: no transaction of the shop reaches it."""

    key = models.CharField(max_length=64, unique=True)
    order_id = models.BigIntegerField()
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    requests = models.PositiveIntegerField(default=0)
    charged_at = models.DateTimeField(null=True, blank=True)
    refund_key = models.CharField(max_length=64, blank=True, default="")
    refunded_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"Payment {self.pk} for order {self.order_id}"


class Shipment(models.Model):
    """What the warehouse was asked to send."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="shipments")
    tracking = models.CharField(max_length=40, blank=True, default="")
    cancelled = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="shop_one_shipment", fields=["order"], condition=models.Q(cancelled=False))
        ]

    def __str__(self) -> str:
        return f"Shipment of order {self.order_id}"
