"""The processes that share the work, and the lines that jobs wait in."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.limits import as_text


class TextArrayField(models.Field):  # type: ignore[type-arg]
    """A text[] column. Django's own ArrayField asks projects to install another app."""

    def db_type(self, connection: Any) -> str:
        return "text[]"


class Queue(models.Model):
    """What an operator decided about a queue. A queue without a row is served like any other; `*` stands for all."""

    name = models.CharField(_("name"), max_length=64, primary_key=True)
    paused_at = models.DateTimeField(_("paused"), null=True, blank=True)
    resume_at = models.DateTimeField(_("resumes"), null=True, blank=True)
    concurrency = models.PositiveIntegerField(_("concurrency"), null=True, blank=True)

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions = [("pause_queue", _("Can pause and resume queues"))]
        constraints = [
            models.CheckConstraint(
                name="reliable_queue_resumes_if_paused",
                condition=Q(resume_at__isnull=True) | Q(paused_at__isnull=False),
            ),
            models.CheckConstraint(
                name="reliable_queue_all_have_no_limit",
                condition=~Q(name="*") | Q(concurrency__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Limit(models.Model):
    """How many jobs of a limit may run at once, or start in a time, in the whole fleet. One row per name.

    What the code says is written by each worker that starts; what an operator says instead stands beside it. Keys with
    `per` (`crm:customer_id=42`) have no rows: their limit is found by the name before the colon.
    """

    class Kind(models.TextChoices):
        CONCURRENCY = "concurrency", _("jobs at once")
        RATE = "rate", _("starts in a time")

    kind = models.CharField(_("kind"), max_length=11, choices=Kind)
    name = models.CharField(_("name"), max_length=100)
    allowed = models.PositiveIntegerField(_("allowed"))
    period = models.PositiveIntegerField(_("in seconds"), null=True)  # the next two are of rates
    burst = models.PositiveIntegerField(_("burst"), null=True)
    override_allowed = models.PositiveIntegerField(_("allowed instead"), null=True, blank=True)  # 0: nothing starts
    override_period = models.PositiveIntegerField(_("in seconds, instead"), null=True, blank=True)
    override_burst = models.PositiveIntegerField(_("burst instead"), null=True, blank=True)
    declared_at = models.DateTimeField(_("declared"), db_default=Now())

    class Meta:
        verbose_name = _("limit")
        verbose_name_plural = _("limits")
        ordering = ["name", "kind"]
        constraints = [
            models.UniqueConstraint(name="reliable_limit_once", fields=["kind", "name"]),
            models.CheckConstraint(
                name="reliable_limit_is_complete",
                condition=Q(kind="concurrency", period__isnull=True, burst__isnull=True)
                | Q(kind="rate", period__isnull=False, period__in=(1, 60, 3600), burst__isnull=False, burst__gte=1),
            ),
            models.CheckConstraint(
                name="reliable_limit_override_is_complete",
                condition=Q(override_allowed__isnull=True, override_period__isnull=True, override_burst__isnull=True)
                | Q(override_allowed__isnull=False)
                & Q(kind="concurrency", override_period__isnull=True, override_burst__isnull=True)
                | Q(kind="rate", override_allowed__isnull=False, override_period__isnull=False)
                & Q(override_period__in=(1, 60, 3600), override_burst__isnull=False, override_burst__gte=1),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.override or self.value}"

    @property
    def value(self) -> str:
        """What the code says: "3", "600/m"."""
        return as_text(self.allowed, self.period, self.burst)

    @property
    def override(self) -> str | None:
        """What an operator says instead."""
        if self.override_allowed is None:
            return None
        return as_text(self.override_allowed, self.override_period, self.override_burst)


class Pace(models.Model):
    """The moment up to which the starts of one rate key are paid for. In the past, it says nothing: the row may go."""

    key = models.CharField(_("key"), max_length=255, primary_key=True)
    paid_until = models.DateTimeField(_("paid until"))

    class Meta:
        verbose_name = _("pace")
        verbose_name_plural = _("paces")

    def __str__(self) -> str:
        return self.key


class Worker(models.Model):
    """One start of one worker process: the lease under which it runs its jobs.

    `id` is random, so that a restarted process never passes for the one that died. Moments are the database's.
    """

    id = models.BigIntegerField(_("id"), primary_key=True)
    host = models.CharField(_("host"), max_length=128)
    pid = models.IntegerField(_("process"))
    queues = TextArrayField(_("queues"), null=True)  # None: all
    excluded_queues = TextArrayField(_("except"), db_default=[])
    threads = models.IntegerField(_("threads"))
    tasks = TextArrayField(_("tasks"), null=True)  # names and aliases that it knew at its start; None: not told
    started_at = models.DateTimeField(_("started"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())
    expires_at = models.DateTimeField(_("lease ends"))
    lost_at = models.DateTimeField(_("declared lost"), null=True)
    is_idle = models.BooleanField(_("idle"), db_default=False)
    is_stopping = models.BooleanField(_("stopping"), db_default=False)
    clock_offset = models.FloatField(_("clock ahead by (seconds)"), null=True)  # of the host's, beside the database's
    memory = models.BigIntegerField(_("memory (bytes)"), null=True)  # resident, with the last renewal

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Leader(models.Model):
    """Who does for all what one process is enough for. A row that is not renewed is free for others.

    `holder` is random for each start of a process, `term` rises with each change of hands. Moments are the database's.
    """

    name = models.CharField(_("name"), max_length=64, primary_key=True)
    holder = models.BigIntegerField(_("holder"))
    term = models.BigIntegerField(_("term"))
    host = models.CharField(_("host"), max_length=128)
    pid = models.IntegerField(_("process"))
    elected_at = models.DateTimeField(_("elected"))
    expires_at = models.DateTimeField(_("term ends"))
    clock_offset = models.FloatField(_("clock ahead by (seconds)"), null=True)

    class Meta:
        verbose_name = _("leader")
        verbose_name_plural = _("leaders")

    def __str__(self) -> str:
        return f"{self.name}: {self.host}:{self.pid}"
