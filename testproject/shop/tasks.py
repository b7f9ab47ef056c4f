"""What the shop does in the background.

A job runs at least once: a worker can be killed after the work and before the job is recorded as
done, and then the job runs again. So each task looks first whether its work is done already.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Prefetch
from django.utils import timezone

from django_reliable_jobs import Cron, current_job, exponential, scheduled, step, task, wait_for_event
from testproject.shop import fax, fulfilment, payments, text_messages
from testproject.shop.models import Invoice, Order, OrderLine


@task()
def make_invoice(order_id: int) -> int:
    """Make the order's invoice, unless it has one; saving a new one enqueues `send_invoice`."""
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        invoice, _ = Invoice.objects.get_or_create(order=order, defaults={"total": order.compute_total()})
    return invoice.pk


@task(unique="invoice_id", max_attempts=10)
def send_invoice(invoice_id: int) -> None:
    """Mail the invoice to the customer, unless it was sent."""
    invoice = Invoice.objects.select_related("order__customer").get(pk=invoice_id)
    if invoice.sent_at is not None:
        return
    customer = invoice.order.customer
    send_mail(
        subject=f"Your invoice for order {invoice.order_id}",
        message=f"Dear {customer.name},\n\nplease pay {invoice.total} EUR.\n",
        from_email=None,
        recipient_list=[customer.email],
    )
    invoice.sent_at = timezone.now()
    invoice.save(update_fields=["sent_at"])


@task(
    priority=-10,
    max_attempts=5,
    backoff=exponential(first=1, factor=2, maximum=600),
    retry_on=(ConnectionError,),
)
def remind_of_payment(order_id: int) -> None:
    """Remind the customer by text message, through a provider that often has to be asked again."""
    order = Order.objects.select_related("customer").get(pk=order_id)
    text_messages.send(
        recipient=order.customer.name,
        text=f"Please remember to pay order {order.pk}.",
        delivery=current_job().attempt,
    )


@task(priority=-10, max_attempts=2, backoff=exponential(first=1, factor=1, maximum=1))
def fax_to_warehouse(order_id: int) -> None:
    """Fax the order to the warehouse. This never works: its jobs end as dead letters."""
    fax.send(f"Order {order_id}: please pack.")


@task(backoff=exponential(first=1, maximum=60), give_up_on=(payments.CardDeclined,))
def fulfil_order(order_id: int) -> str:
    """Charge, reserve, ship and tell: days of work as one function, whatever dies in between.

    If it fails for good or is cancelled, what was done is undone, newest first.
    """
    step("charge", fulfilment.charge_card, order_id, undo=fulfilment.refund)
    step("reserve", fulfilment.reserve_stock, order_id, undo=fulfilment.put_back_stock, atomic=True)
    step("ship", fulfilment.ask_warehouse, order_id, undo=fulfilment.stop_shipment)
    shipment = wait_for_event(f"shipped:{order_id}", timeout=timedelta(days=7))
    step("mail", fulfilment.mail_tracking, order_id, shipment["tracking"])
    tracking: str = shipment["tracking"]
    return tracking


@scheduled(
    Cron("0 2 * * *", timezone="Europe/Berlin"),
    name="nightly-invoices",
    overlap="skip",
    catch_up="latest",
    start_deadline=timedelta(hours=6),
    alert_after=timedelta(hours=26),
)
@task()
def nightly_invoices() -> int:
    """Enqueue the invoices of orders that have none, whatever became of their own jobs."""
    orders = Order.objects.filter(invoice=None).values_list("pk", flat=True)
    return len(make_invoice.enqueue_many([{"order_id": order_id} for order_id in orders]))


@task(max_attempts=20)
def reprice_orders(percent: int, size: int = 200) -> dict[str, int]:
    """Raise the price of every order line, each exactly once: a second time would show.

    New prices, and how far the job is, commit together, batch by batch. An order without lines is skipped.
    """
    factor = 1 + Decimal(percent) / 100
    orders = Order.objects.prefetch_related(Prefetch("lines", OrderLine.objects.select_for_update()))
    batches = current_job().batches(orders, size=size)
    for batch in batches:
        with batch:
            changed = []
            for order in batch:
                lines = list(order.lines.all())
                if not lines:
                    batch.skip(order, "it has no lines")
                for line in lines:
                    line.unit_price = (line.unit_price * factor).quantize(Decimal("0.01"))
                changed += lines
            OrderLine.objects.bulk_update(changed, ["unit_price"])
    return {"orders": batches.done, "skipped": batches.skipped}
