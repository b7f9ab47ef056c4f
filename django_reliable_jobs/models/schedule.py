"""When a task's jobs are made, and what became of every due moment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs import recurrence
from django_reliable_jobs.recurrence import Recurrence


class Schedule(models.Model):
    """A task, its arguments, and when its jobs are made.

    `decided_until` is the cursor: every slot up to it has a job or a recorded reason. `next_run_at` is the first slot
    after it, None if there is none or if it is paused until further notice. A schedule that can't be decided keeps
    both, says why in `error`, and is tried again at `retry_at`.
    """

    class Overlap(models.TextChoices):
        ALLOW = "allow", _("allow: they run side by side")
        SKIP = "skip", _("skip: the new one is left out")
        QUEUE = "queue", _("queue: one waits its turn")
        REPLACE = "replace", _("replace: the older one is cancelled")

    class CatchUp(models.TextChoices):
        NONE = "none", _("none")
        LATEST = "latest", _("the latest")
        ALL = "all", _("all, up to the limit")

    class ManagedBy(models.TextChoices):
        CODE = "code", _("code")
        ADMIN = "admin", _("admin")

    name = models.CharField(_("name"), max_length=255, unique=True)
    task = models.CharField(_("task"), max_length=255)
    kwargs = models.JSONField(_("arguments"), default=dict, blank=True)
    recurrence = models.JSONField(_("recurrence"))  # as it was written; "auto" is resolved in the next two
    effective_gap = models.CharField(_("rule for skipped times"), max_length=8, blank=True, default="")
    effective_fold = models.CharField(_("rule for repeated times"), max_length=8, blank=True, default="")
    overlap = models.CharField(_("overlap"), max_length=8, choices=Overlap, default=Overlap.SKIP)
    catch_up = models.CharField(_("catch up"), max_length=8, choices=CatchUp, default=CatchUp.LATEST)
    catch_up_limit = models.PositiveSmallIntegerField(_("catch up at most"), default=100)
    start_deadline = models.DurationField(_("start deadline"), null=True, blank=True)
    jitter = models.DurationField(_("jitter"), null=True, blank=True)
    starts_at = models.DateTimeField(_("starts"), null=True, blank=True)
    ends_at = models.DateTimeField(_("ends"), null=True, blank=True)
    queue_name = models.CharField(_("queue"), max_length=64, blank=True, default="")  # empty: the task's
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)  # None: the task's
    alert_after = models.DurationField(_("alert after"), null=True, blank=True)
    ping_url = models.CharField(_("ping"), max_length=500, blank=True, default="")  # a monitor outside
    keep_succeeded = models.PositiveIntegerField(_("succeeded jobs kept"), null=True, blank=True)
    keep_failed = models.PositiveIntegerField(_("failed jobs kept"), null=True, blank=True)
    managed_by = models.CharField(_("managed by"), max_length=8, choices=ManagedBy, default=ManagedBy.ADMIN)
    declared = models.JSONField(_("declared in code"), null=True)  # the code's own values, as of the last sync
    paused_at = models.DateTimeField(_("paused"), null=True, blank=True)
    resume_at = models.DateTimeField(_("resumes"), null=True, blank=True)
    pause_reason = models.TextField(_("why it is paused"), blank=True, default="")
    decided_until = models.DateTimeField(_("decided until"))
    next_run_at = models.DateTimeField(_("next run"), null=True)
    horizon = models.DateTimeField(_("horizon"), null=True)  # of slots up to here the rows may be gone
    planned = models.JSONField(_("next runs when last decided"), default=list)
    watched_since = models.DateTimeField(_("watched since"), db_default=Now())  # its making, or the end of a pause
    succeeded_at = models.DateTimeField(_("last success"), null=True)  # of the jobs that may have been pruned
    error = models.TextField(_("error"), blank=True, default="")
    error_at = models.DateTimeField(_("broken since"), null=True)
    retry_at = models.DateTimeField(_("tried again"), null=True)
    created_at = models.DateTimeField(_("created"), db_default=Now())
    changed_at = models.DateTimeField(_("changed"), db_default=Now())

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = [("pause_schedule", _("Can pause and resume schedules"))]
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="reliable_schedule_next_is_undecided",
                condition=Q(next_run_at__isnull=True) | Q(next_run_at__gt=F("decided_until")),
            ),
            models.CheckConstraint(
                name="reliable_schedule_paused_has_no_next",
                condition=Q(paused_at__isnull=True) | Q(resume_at__isnull=False) | Q(next_run_at__isnull=True),
            ),
            models.CheckConstraint(
                name="reliable_schedule_resumes_if_paused",
                condition=Q(paused_at__isnull=False) | Q(resume_at__isnull=True, pause_reason=""),
            ),
            models.CheckConstraint(
                name="reliable_schedule_ends_after_start",
                condition=Q(ends_at__isnull=True) | Q(starts_at__isnull=True) | Q(ends_at__gte=F("starts_at")),
            ),
            models.CheckConstraint(
                name="reliable_schedule_horizon_is_decided",
                condition=Q(horizon__isnull=True) | Q(horizon__lte=F("decided_until")),
            ),
            models.CheckConstraint(
                name="reliable_schedule_broken_is_complete",
                condition=Q(error="", error_at__isnull=True, retry_at__isnull=True)
                | (~Q(error="") & Q(error_at__isnull=False, retry_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="reliable_schedule_values_in_range",
                condition=(Q(priority__isnull=True) | Q(priority__gte=-100, priority__lte=100))
                & Q(catch_up_limit__gte=1, catch_up_limit__lte=1000),
            ),
        ]
        indexes = [
            models.Index(
                name="reliable_schedule_due",
                fields=["next_run_at", "id"],
                condition=Q(next_run_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def serial_key(self) -> str | None:
        """The key under which the schedule's jobs run one after another; None if they may overlap."""
        return None if self.overlap == self.Overlap.ALLOW else f"schedule:{self.pk}"

    def rule(self) -> Recurrence:
        """Return what decides its slots: the recurrence with `auto` as it was resolved when it was saved.

        Raises InvalidRecurrence if it can't hold on this machine: a zone that is unknown here.
        """
        stored: dict[str, Any] = dict(self.recurrence)
        if self.effective_gap:
            stored |= {"on_gap": self.effective_gap, "on_fold": self.effective_fold}
        return recurrence.from_dict(stored)


class Slot(models.Model):
    """One due moment of a schedule, decided: it has a job, or the reason why it has none.

    The primary key is the guarantee that a slot makes one job at most; it outlives the job.
    """

    class Outcome(models.TextChoices):
        JOB = "job", _("job")
        MISSED = "missed", _("missed")
        SKIPPED = "skipped", _("skipped")

    class Reason(models.TextChoices):
        DEADLINE = "deadline", _("decided after its start deadline")
        MISFIRE = "misfire", _("missed, and not caught up")
        LIMIT = "limit", _("missed, and beyond the limit of catching up")
        OVERLAP = "overlap", _("an earlier job had not ended")
        REPLACED = "replaced", _("a later slot was due too")
        DUPLICATE = "duplicate", _("a live job had the same unique key")
        PAUSED = "paused", _("the schedule was paused")
        EDITED = "edited", _("the schedule was changed before it was decided")

    pk = models.CompositePrimaryKey("schedule_id", "slot")
    schedule_id = models.BigIntegerField(_("schedule"))
    slot = models.DateTimeField(_("slot"))
    outcome = models.CharField(_("outcome"), max_length=8, choices=Outcome)
    reason = models.CharField(_("reason"), max_length=10, choices=Reason, blank=True, default="")
    job_id = models.BigIntegerField(_("job"), null=True)  # no foreign key: the slot outlives the job
    decided_at = models.DateTimeField(_("decided"), db_default=Now())

    class Meta:
        verbose_name = _("slot")
        verbose_name_plural = _("slots")
        constraints = [
            models.CheckConstraint(
                name="reliable_slot_has_job_or_reason",
                condition=Q(outcome="job", job_id__isnull=False, reason="")
                | (Q(outcome__in=("missed", "skipped"), job_id__isnull=True) & ~Q(reason="")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.slot.isoformat()}: {self.reason or self.outcome}"


class Pinged(models.Model):
    """Which starts and ends of a schedule's jobs were told to its monitor, of those that are still looked at."""

    schedule_id = models.BigIntegerField(_("schedule"), primary_key=True)
    told = models.JSONField(_("told"), default=list)

    class Meta:
        verbose_name = _("record of pings")
        verbose_name_plural = _("records of pings")

    def __str__(self) -> str:
        return str(self.schedule_id)


class SlotRange(models.Model):
    """Slots from `first` to `last` that got no job, for one reason; one that has a row of its own goes by that row."""

    schedule_id = models.BigIntegerField(_("schedule"))
    first = models.DateTimeField(_("first"))
    last = models.DateTimeField(_("last"))
    count = models.PositiveIntegerField(_("slots"), null=True)  # None: more than were counted
    outcome = models.CharField(_("outcome"), max_length=8, choices=Slot.Outcome)
    reason = models.CharField(_("reason"), max_length=10, choices=Slot.Reason)
    decided_at = models.DateTimeField(_("decided"), db_default=Now())

    class Meta:
        verbose_name = _("range of slots")
        verbose_name_plural = _("ranges of slots")
        constraints = [
            models.CheckConstraint(name="reliable_range_runs_forward", condition=Q(last__gte=F("first"))),
            models.CheckConstraint(name="reliable_range_has_no_job", condition=Q(outcome__in=("missed", "skipped"))),
        ]
        indexes = [models.Index(name="reliable_range_of_schedule", fields=["schedule_id", "last"])]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.first.isoformat()} to {self.last.isoformat()}: {self.reason}"


def is_paused(schedule: Schedule, now: datetime) -> bool:
    """Return whether a pause is in force at `now`: one whose end has come is over, cleared or not."""
    return schedule.paused_at is not None and (schedule.resume_at is None or schedule.resume_at > now)
