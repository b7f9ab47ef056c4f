"""The shop's one page."""

from __future__ import annotations

import json

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from django_reliable_jobs import emit_event
from testproject.shop.forms import OrderForm
from testproject.shop.models import Order, Stock
from testproject.shop.tasks import fulfil_order, make_invoice


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
        fulfil_order.enqueue(order.pk)
        order.lines.create(**line)
        Stock.objects.get_or_create(product=line["product"], defaults={"quantity": 100})  # a well-stocked shop
    messages.success(request, f"{order} is placed; job {job.pk} makes its invoice.")
    return redirect("place-order")


@csrf_exempt
@require_POST
def shipped(request: HttpRequest, order_id: int) -> HttpResponse:
    """Be told by the parcel service: {"tracking": "1Z…"}. The order that waits for it goes on.

    A real one would check the sender's signature.
    """
    emit_event(f"shipped:{order_id}", {"tracking": str(json.loads(request.body)["tracking"])})
    return HttpResponse(status=204)
