"""The shop's long job."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.management import call_command

from testproject.shop.models import Customer, Order, OrderLine
from testproject.shop.tasks import reprice_orders
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


def test_every_order_line_gets_its_new_price_once_and_orders_without_lines_are_skipped() -> None:
    call_command("fill_shop", "--orders", "25", verbosity=0)
    Order.objects.create(customer=Customer.objects.get())
    reprice_orders.enqueue(10, size=10)
    [job] = run_jobs()
    assert (job.status, job.result) == ("SUCCEEDED", {"orders": 26, "skipped": 1})
    assert set(OrderLine.objects.values_list("unit_price", flat=True)) == {Decimal("11.00")}
