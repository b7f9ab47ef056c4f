"""`manage.py fill_shop`: very many orders, to try long jobs on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from testproject.shop.models import Customer, Order, OrderLine

PORTION = 5_000


class Command(BaseCommand):
    """Make orders of one line each, at 10.00, without jobs."""

    help = "Make very many orders, to try long jobs on."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add how many."""
        parser.add_argument("--orders", type=int, default=100_000, metavar="N", help="how many (default: 100,000)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make them, portion by portion."""
        customer, _ = Customer.objects.get_or_create(email="wholesale@example.com", defaults={"name": "Wholesale"})
        left = options["orders"]
        while left > 0:
            orders = Order.objects.bulk_create(Order(customer=customer) for _ in range(min(PORTION, left)))
            OrderLine.objects.bulk_create(
                OrderLine(order=order, product="Punched cards", quantity=1, unit_price=Decimal("10.00"))
                for order in orders
            )
            left -= len(orders)
        self.stdout.write(f"{options['orders']:,} orders at 10.00 each")
