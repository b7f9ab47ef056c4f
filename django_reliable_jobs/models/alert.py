"""What a person should know of, and what is still to be told of it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Alert(models.Model):
    """One thing that is not as it should be, from when it was found until it was over.

    There is at most one open alert of a kind for a subject, whatever number of schedulers look: a hundred faults of one
    cause are one row with a count. Moments are the database's.
    """

    class Kind(models.TextChoices):
        SCHEDULE_SILENT = "schedule_silent", _("schedule without success")
        SCHEDULE_BROKEN = "schedule_broken", _("schedule that can't be decided")
        SCHEDULE_FAILING = "schedule_failing", _("schedule that fails again and again")
        SCHEDULE_OVERDUE = "schedule_overdue", _("slot that nobody decides")
        SCHEDULE_MOVED = "schedule_moved", _("schedule whose next runs moved")
        SLOT_MISSED = "slot_missed", _("missed slot")
        NO_SCHEDULER = "no_scheduler", _("no scheduler")
        TASK_SILENT = "task_silent", _("task without success")
        TASK_UNKNOWN = "task_unknown", _("task that no worker knows")
        DEAD_LETTERS = "dead_letters", _("new dead letters")
        RUNS_LONG = "runs_long", _("job that runs too long")
        QUEUE_AGEING = "queue_ageing", _("queue in which jobs wait too long")
        QUEUE_UNSERVED = "queue_unserved", _("queue that no worker serves")
        WORKER_LOST = "worker_lost", _("lost worker")
        UNDO_FAILED = "undo_failed", _("undo that failed")
        OLD_TRANSACTION = "old_transaction", _("old transaction that holds back vacuum")
        CLOCK_OFF = "clock_off", _("host whose clock is off")

    class Severity(models.TextChoices):
        WARNING = "warning", _("warning")
        CRITICAL = "critical", _("critical")

    kind = models.CharField(_("kind"), max_length=32, choices=Kind)
    subject = models.CharField(_("subject"), max_length=255)  # the schedule, task, queue, worker … it is about
    severity = models.CharField(_("severity"), max_length=8, choices=Severity)
    message = models.TextField(_("message"))
    count = models.PositiveIntegerField(_("count"), db_default=1)
    opened_at = models.DateTimeField(_("since"), db_default=Now())
    seen_at = models.DateTimeField(_("last change"), db_default=Now())
    told_at = models.DateTimeField(_("last told"), null=True)
    resolved_at = models.DateTimeField(_("resolved"), null=True)
    acknowledged_at = models.DateTimeField(_("acknowledged"), null=True)
    acknowledged_by = models.CharField(_("acknowledged by"), max_length=150, db_default="")

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-opened_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                name="reliable_alert_open_once",
                fields=["kind", "subject"],
                condition=Q(resolved_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(
                name="reliable_alert_resolved", fields=["resolved_at"], condition=Q(resolved_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


class Notice(models.Model):
    """One thing to be said about an alert through one channel; gone when it was said.

    Who sends it moves `due_at` first: a sender that dies, or a channel that fails, has only put it off.
    """

    class Event(models.TextChoices):
        OPENED = "opened", _("opened")
        REPEATED = "repeated", _("still open")
        RESOLVED = "resolved", _("resolved")

    alert = models.ForeignKey(Alert, models.CASCADE, related_name="notices", verbose_name=_("alert"))
    channel = models.CharField(_("channel"), max_length=64)
    event = models.CharField(_("event"), max_length=8, choices=Event)
    created_at = models.DateTimeField(_("since"), db_default=Now())
    due_at = models.DateTimeField(_("due"), db_default=Now())
    tries = models.PositiveSmallIntegerField(_("tries"), db_default=0)
    error = models.TextField(_("error"), db_default="")

    class Meta:
        verbose_name = _("notice")
        verbose_name_plural = _("notices")
        indexes = [models.Index(name="reliable_notice_due", fields=["channel", "due_at"])]

    def __str__(self) -> str:
        return f"{self.channel}: {self.alert_id} {self.event}"
