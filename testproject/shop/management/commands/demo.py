"""`manage.py demo`: the shop takes orders, a real worker does the work, and a table shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import IO, Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.test import Client
from django.urls import reverse

from django_reliable_jobs.models import Job
from testproject.shop.models import Customer, Invoice, Order, Stock
from testproject.shop.tasks import fax_to_warehouse, fulfil_order, make_invoice, remind_of_payment, send_invoice

CUSTOMERS = ["Ada Lovelace", "Grace Hopper", "Katherine Johnson", "Mary Jackson"]
ENDED = {"SUCCEEDED", "DEAD", "CANCELLED"}
# The retries take about four seconds; a slow machine gets more, and half a minute in all.
PATIENCE_SECONDS = 20
STOP_SECONDS = 8


class Command(BaseCommand):
    """Show the main thing in half a minute; may be run again and again."""

    help = "Place orders, run their jobs in a real worker process, and show what ran."

    def handle(self, *args: Any, **options: Any) -> None:
        """Go through the steps; raises CommandError if one did not do what it should."""
        self.migrate()
        self.say("2. Place orders; each enqueues its jobs in its own transaction")
        orders = [self.place_order(customer) for customer in self.make_customers()]
        with transaction.atomic():
            remind_of_payment.enqueue(orders[0].pk)
            fax_to_warehouse.enqueue(orders[0].pk)
            self.order_fulfilment(orders[1])
        self.say("3. Place one more order and roll it back")
        self.roll_back_an_order(orders[0].customer)
        self.say("4. Start a worker: manage.py runworker")
        with run_worker() as (worker, log):
            self.watch(orders, worker, log)
        self.say("5. What ran")
        jobs = jobs_of(orders)
        self.show_table(jobs)
        self.verify(jobs, orders)
        self.show_next_steps(jobs)

    def migrate(self) -> None:
        """Say where the tables go before they go there; raises CommandError if that can't be reached."""
        database = connection.settings_dict
        is_ours = database["ENGINE"] == "testproject.embedded.backend"
        self.say("1. Migrate the database" + ("" if is_ours else f" {database['NAME']!r} of DATABASE_URL"))
        try:
            connection.ensure_connection()
        except OperationalError as error:
            way_out = "" if is_ours else "\nWithout DATABASE_URL, the demo starts a PostgreSQL of its own."
            raise CommandError(f"{error}{way_out}") from None
        call_command("migrate", verbosity=0)

    def say(self, text: str) -> None:
        """Print a heading."""
        self.stdout.write(self.style.MIGRATE_HEADING(text))

    def make_customers(self) -> list[Customer]:
        """Find or make the customers."""
        return [
            Customer.objects.get_or_create(email=f"{name.split()[0].lower()}@example.com", defaults={"name": name})[0]
            for name in CUSTOMERS
        ]

    def place_order(self, customer: Customer) -> Order:
        """Save an order and enqueue the job that makes its invoice: both or neither."""
        with transaction.atomic():
            order = Order.objects.create(customer=customer)
            make_invoice.enqueue(order.pk)
            order.lines.create(product="Punched cards", quantity=3, unit_price=Decimal("9.50"))
        self.stdout.write(f"   {order} for {customer}")
        return order

    def order_fulfilment(self, order: Order) -> None:
        """Enqueue the work of days: its payment takes three tries, and then it waits for the parcel service."""
        Stock.objects.update_or_create(product="Punched cards", defaults={"quantity": 1000})
        Order.objects.filter(pk=order.pk).update(card="hangs up")
        fulfil_order.enqueue(order.pk)

    def ship(self, orders: list[Order]) -> None:
        """Call the webhook, as the parcel service does, for each order that waits for it."""
        for job in jobs_of(orders).filter(task=fulfil_order.name, status="WAITING"):
            address = reverse("shipped", args=job.args)
            answer = Client().post(address, {"tracking": f"1Z{job.args[0]:06}"}, content_type="application/json")
            if answer.status_code != 204:
                raise CommandError(f"{address} answered {answer.status_code}")

    def roll_back_an_order(self, customer: Customer) -> None:
        """Show that a job does not outlive the transaction it was enqueued in."""
        with transaction.atomic():
            order = Order.objects.create(customer=customer)
            job = make_invoice.enqueue(order.pk)
            order_pk, job_pk = order.pk, job.pk
            transaction.set_rollback(True)
        if Job.objects.filter(pk=job_pk).exists() or Order.objects.filter(pk=order_pk).exists():
            raise CommandError(f"Job {job_pk} or order {order_pk} outlived its transaction.")
        self.stdout.write(f"   order {order_pk} is gone, and so is its job {job_pk}")

    def watch(self, orders: list[Order], worker: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        """Show how many jobs are where, until all have ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        shown = ""
        while True:
            counts = Counter(jobs_of(orders).values_list("status", flat=True))
            text = ", ".join(f"{counts[status]} {status}" for status in sorted(counts))
            if text != shown:
                self.stdout.write(f"   {text}")
                shown = text
            if sum(counts[status] for status in ENDED) == expected_endings(orders).total():
                return
            if worker.poll() is not None:
                raise CommandError(f"The worker ended by itself:\n{read_end(log)}")
            self.ship(orders)
            if time.monotonic() > deadline:
                raise CommandError(f"Not done in {PATIENCE_SECONDS} s: {text}. The worker said:\n{read_end(log)}")
            time.sleep(0.1)

    def show_table(self, jobs: QuerySet[Job]) -> None:
        """Print a line for each job, and under it one for each attempt that failed."""
        self.stdout.write(f"   {'job':>6}  {'task':<20} {'status':<10} {'attempts':>8} {'run':>8}")
        for job in jobs.prefetch_related("attempts"):
            style = self.style.ERROR if job.status == "DEAD" else self.style.SUCCESS
            ran = milliseconds(job.started_at, job.finished_at)
            name = job.task.rpartition(".")[2]
            status = style(f"{job.status:<10}")
            self.stdout.write(f"   {job.pk:>6}  {name:<20} {status} {job.attempt:>8} {ran:>8}")
            for attempt in job.attempts.all():
                ran = milliseconds(attempt.started_at, attempt.finished_at)
                error = f"{attempt.error_class.rpartition('.')[2]}: {attempt.error_message}"
                self.stdout.write(f"           attempt {attempt.number} {attempt.outcome} after {ran}: {error}")
            for step in job.checkpoints.order_by("pk"):
                tries = f", tries: {step.tries}" if step.tries else ""
                self.stdout.write(f"           {step.kind} {step.name}: {step.state}{tries}")

    def verify(self, jobs: QuerySet[Job], orders: list[Order]) -> None:
        """Raise CommandError unless everything ended as it should."""
        endings = Counter(job.status for job in jobs)
        invoiced = Invoice.objects.filter(order__in=orders, sent_at__isnull=False).count()
        expected = expected_endings(orders)
        if endings != expected or invoiced != len(orders):
            raise CommandError(
                f"Expected {dict(expected)} and {len(orders)} invoices sent, but got {dict(endings)} and {invoiced}."
            )

    def show_next_steps(self, jobs: QuerySet[Job]) -> None:
        """Say what to try next."""
        dead = jobs.get(status="DEAD")
        self.say("All is as it should be. Next, try")
        python = os.path.relpath(sys.executable)
        command = f"{python if len(python) < len(sys.executable) else sys.executable} manage.py"
        for arguments, purpose in [
            ("jobs status", "what is waiting and running"),
            (f"jobs show {dead.pk}", "the dead letter, with its tracebacks"),
            (f"jobs retry {dead.pk}", "one more chance for it"),
            ("runworker --with-scheduler", "a worker and a scheduler, until Ctrl-C"),
            ("createsuperuser", "a user for the admin"),
            ("runserver", "http://127.0.0.1:8000/ to order, /admin/django_reliable_jobs/ to look"),
        ]:
            self.stdout.write(f"   {command} {arguments:<26} # {purpose}")


def jobs_of(orders: list[Order]) -> QuerySet[Job]:
    """The jobs of these orders and of their invoices, in the order in which they were enqueued.

    Not simply the newest jobs: the worker also does what other runs have left.
    """
    about_orders = [task.name for task in (make_invoice, remind_of_payment, fax_to_warehouse, fulfil_order)]
    invoices = Invoice.objects.filter(order__in=orders).values_list("pk", flat=True)
    return Job.objects.filter(
        Q(task__in=about_orders, args__0__in=[order.pk for order in orders])
        | Q(task=send_invoice.name, args__0__in=list(invoices))
    ).order_by("pk")


def expected_endings(orders: list[Order]) -> Counter[str]:
    """Two jobs for each order (invoice and mail), the reminder, the fulfilment, and the fax that fails."""
    return Counter({"SUCCEEDED": 2 * len(orders) + 2, "DEAD": 1})


@contextmanager
def run_worker() -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run `manage.py runworker` beside this process; stop it cleanly, as systemd would."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "runworker"]
    with tempfile.TemporaryFile() as log:
        worker = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield worker, log
            worker.send_signal(signal.SIGTERM)
            if worker.wait(timeout=STOP_SECONDS) != 0:
                raise CommandError(f"The worker did not stop cleanly:\n{read_end(log)}")
        except subprocess.TimeoutExpired as error:
            raise CommandError(f"The worker does not stop:\n{read_end(log)}") from error
        finally:
            if worker.poll() is None:
                worker.kill()
                worker.wait()


def read_end(log: IO[bytes]) -> str:
    """The last lines of what the worker printed."""
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-20:])


def milliseconds(start: datetime | None, end: datetime | None) -> str:
    """The time between two moments, for the table."""
    return "" if start is None or end is None else f"{(end - start).total_seconds() * 1000:.0f} ms"
