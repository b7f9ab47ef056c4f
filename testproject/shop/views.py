"""The shop's one page."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from testproject.shop.forms import OrderForm
from testproject.shop.models import Order
from testproject.shop.tasks import make_invoice


@require_http_methods(["GET", "POST"])
def place_order(request: HttpRequest) -> HttpResponse:
    """Save an order and enqueue the job that makes its invoice: both or neither."""
    form = OrderForm(request.POST or None)
    if not form.is_valid():
        return render(request, "shop/place_order.html", {"form": form})
    line = dict(form.cleaned_data)
    with transaction.atomic():
        order = Order.objects.create(customer=line.pop("customer"))
        # The line comes later and may still fail. No worker sees the job before the commit.
        job = make_invoice.enqueue(order.pk)
        order.lines.create(**line)
    messages.success(request, f"{order} is placed; job {job.pk} makes its invoice.")
    return redirect("place-order")
