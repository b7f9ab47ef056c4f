"""What happened how often, so that nobody has to count jobs."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class MinuteCount(models.Model):
    """How many attempts of a task's jobs in a queue ended in one way within a minute, in the whole fleet.

    Workers add to it with their heartbeat: a minute is complete some ten seconds after its end. What a killed worker
    had not added yet is missing.
    """

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded", _("succeeded")
        FAILED = "failed", _("failed, tried again")
        DEAD = "dead", _("dead")
        CANCELLED = "cancelled", _("cancelled")
        SNOOZED = "snoozed", _("snoozed")
        INTERRUPTED = "interrupted", _("interrupted")
        LOST = "lost", _("lost")
        UNKNOWN = "unknown", _("task not known")

    pk = models.CompositePrimaryKey("minute", "queue_name", "task", "outcome")
    minute = models.DateTimeField(_("minute"))
    queue_name = models.CharField(_("queue"), max_length=64)
    task = models.CharField(_("task"), max_length=255)
    outcome = models.CharField(_("outcome"), max_length=11, choices=Outcome)
    count = models.BigIntegerField(_("attempts"))
    seconds = models.FloatField(_("seconds that they ran"))

    class Meta:
        verbose_name = _("count of a minute")
        verbose_name_plural = _("counts of minutes")

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.queue_name} {self.task} {self.outcome}: {self.count}"


class Pulse(models.Model):
    """When a task that declares `alert_after` last succeeded. Written by workers: declared at start, then with the
    heartbeat.
    """

    task = models.CharField(_("task"), max_length=255, primary_key=True)
    watched_since = models.DateTimeField(_("watched since"), db_default=Now())
    succeeded_at = models.DateTimeField(_("last success"), null=True)

    class Meta:
        verbose_name = _("pulse")
        verbose_name_plural = _("pulses")

    def __str__(self) -> str:
        return self.task
