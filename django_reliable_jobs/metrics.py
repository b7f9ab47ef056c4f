"""Prometheus metrics; needs the extra `metrics`.

Two kinds. A worker tells at its --health-port, under /metrics, what it did itself: attempts, how long they ran, how
long they had waited. What is true of the whole fleet is read from the database when somebody asks: at the port of a
scheduler or supervisor, or by the view `metrics`.

Labels are bounded: a task that is not declared, and queues beyond the first hundred, are told as `other`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_reliable_jobs import registry
from django_reliable_jobs.engine import fleet_figures
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.health import is_allowed
from django_reliable_jobs.processes.probe import Page
from django_reliable_jobs.processes.tally import name_of

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError("django_reliable_jobs.metrics needs prometheus_client: install the extra `metrics`") from error

if TYPE_CHECKING:
    from django_reliable_jobs.processes.pool import HeldJob
    from django_reliable_jobs.processes.tally import Tally

MOST_QUEUES = 100
OTHER = "other"
BUCKETS = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, float("inf"))


class WorkerMetrics(Collector):
    """What one worker process did since its start."""

    def __init__(self, tally: Tally) -> None:
        self.registry = CollectorRegistry()
        labels = ["queue", "task"]
        self._attempts = Counter(
            "reliable_jobs_attempts", "Attempts that ended", [*labels, "outcome"], registry=self.registry
        )
        self._ran = Histogram(
            "reliable_jobs_run_seconds", "How long attempts ran", labels, buckets=BUCKETS, registry=self.registry
        )
        self._waited = Histogram(
            "reliable_jobs_wait_seconds",
            "How long jobs had waited after they were due, by the host's clock",
            ["queue"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._tally = tally
        self._queues = _Bounded()
        self.registry.register(self)
        tally.observers.append(self.observe)

    def observe(self, ended: Sequence[HeldJob]) -> None:
        """Take note of attempts whose ending was written."""
        now, monotonic = time.time(), time.monotonic()
        for held in ended:
            if held.outcome is None or held.started is None or held.ended is None:
                continue
            queue, task = self._queues.name(held.job.queue_name), task_label(held.job.task)
            self._attempts.labels(queue, task, name_of(held.outcome) or "released").inc()
            self._ran.labels(queue, task).observe(held.ended - held.started)
            due = datetime.fromisoformat(held.job.due).timestamp()
            self._waited.labels(queue).observe(max(now - (monotonic - held.started) - due, 0.0))

    def collect(self) -> Iterator[Metric]:
        events = self._tally.events
        yield CounterMetricFamily(
            "reliable_jobs_lost_leases", "How often this worker was declared lost", events["lost_leases"]
        )
        yield CounterMetricFamily("reliable_jobs_rescued", "Jobs taken back from lost workers", events["rescued"])

    def page(self) -> tuple[str, bytes]:
        return CONTENT_TYPE_LATEST, generate_latest(self.registry)


class FleetMetrics(Collector):
    """What is true of the whole fleet now, read from the database at each look."""

    def __init__(self, using: str) -> None:
        self._using = using

    def collect(self) -> Iterator[Metric]:
        figures = fleet_figures.read(self._using)
        yield from _by_queue(figures)
        yield _gauge("running_per_limit", "Running jobs that count for a limit", ["limit"], figures.running_per_limit)
        yield _gauge(
            "attempts_last_minute",
            "Attempts that ended in the last full minute",
            ["queue", "outcome"],
            figures.attempts_last_minute,
        )
        yield _gauge("open_alerts", "Alerts that are open", ["kind", "severity"], figures.open_alerts)
        yield _gauge("dead_letters", "Jobs that used up their attempts", [], {(): figures.dead})
        yield _gauge("leader_term", "Rises when another scheduler leads", [], {(): figures.leader_term})
        yield _gauge("has_leader", "Whether a scheduler leads", [], {(): float(figures.has_leader)})
        yield _gauge(
            "slot_late_seconds",
            "The longest time after its moment that the last slot of a schedule was decided",
            [],
            {(): figures.slot_late_seconds},
        )

    def page(self) -> tuple[str, bytes]:
        return _page_of(self)


class DatabasesMetrics(Collector):
    """The figures of several databases, told apart by the label `database`; one that does not answer has none."""

    def __init__(self, databases: Sequence[str]) -> None:
        self._databases = databases

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        answers: dict[tuple[str], float] = {}
        for using in self._databases:
            try:
                found = list(FleetMetrics(using).collect())
            except DatabaseError:
                found = []
            answers[(using,)] = float(bool(found))
            for family in found:
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.add_sample(sample.name, {"database": using, **sample.labels}, sample.value)
        yield _gauge("database_up", "Whether the database answered", ["database"], answers)
        yield from families.values()

    def page(self) -> tuple[str, bytes]:
        return _page_of(self)


def worker_pages(tally: Tally) -> dict[str, Page]:
    """Return what a worker serves beside its probe."""
    return {"/metrics": WorkerMetrics(tally).page}


def fleet_pages(databases: Sequence[str]) -> dict[str, Page]:
    """Return what a scheduler or supervisor of these databases serves beside its probe."""
    fleet = FleetMetrics(databases[0]) if len(databases) == 1 else DatabasesMetrics(databases)

    def page() -> tuple[str, bytes]:
        try:
            return fleet.page()
        finally:
            for using in databases:
                connections[using].close()  # of the thread that answers this one request

    return {"/metrics": page}


@transaction.non_atomic_requests
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of the fleet; 403 without HEALTH_TOKEN, 503 if the database does not answer."""
    if not is_allowed(request):
        return HttpResponse(status=403)
    using = default_database()
    try:
        content_type, content = FleetMetrics(using).page()
    except DatabaseError:
        connections[using].close()
        return HttpResponse(status=503)
    return HttpResponse(content, content_type=content_type)


def task_label(name: str) -> str:
    """Return the label of a task: its declared name, or `other`."""
    task = registry.find(name)
    return OTHER if task is None else task.name


class _Bounded:
    """The first so many names; all others are `other`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def name(self, name: str) -> str:
        if name not in self._seen:
            if len(self._seen) >= MOST_QUEUES:
                return OTHER
            self._seen.add(name)
        return name


def _page_of(collector: Collector) -> tuple[str, bytes]:
    registry = CollectorRegistry()
    registry.register(collector)
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def _by_queue(figures: fleet_figures.Figures) -> Iterator[Metric]:
    told: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
        ("ready", "Jobs that could run", lambda queue: queue.ready),
        ("running", "Jobs that run", lambda queue: queue.running),
        ("scheduled", "Jobs that are due later", lambda queue: queue.scheduled),
        ("workers", "Workers that serve the queue", lambda queue: queue.workers),
        ("oldest_seconds", "How long the first job that could run has waited", lambda queue: _seconds(queue.oldest)),
    )
    shown = figures.queues[:MOST_QUEUES]
    for name, description, value in told:
        yield _gauge(name, description, ["queue"], {(queue.name,): value(queue) for queue in shown})


def _gauge(name: str, description: str, labels: Iterable[str], values: dict[Any, float]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"reliable_jobs_{name}", description, labels=list(labels))
    for key, value in list(values.items())[: 10 * MOST_QUEUES]:
        gauge.add_metric(list(key), value)
    return gauge


def _seconds(span: timedelta | None) -> float:
    return 0.0 if span is None else span.total_seconds()
