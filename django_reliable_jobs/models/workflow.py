"""What jobs wait for: events, children, batches."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.job import Job


class Event(models.Model):
    """A named fact with a payload. The first of a name stays; kept for EVENT_RETENTION, and while it is waited for."""

    name = models.CharField(_("name"), max_length=255, unique=True)
    payload = models.JSONField(_("payload"))
    emitted_at = models.DateTimeField(_("emitted"), db_default=Now())
    is_new = models.BooleanField(_("new"), db_default=True)  # no worker has looked yet for who waits for it

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [
            models.Index(name="reliable_event_new", fields=["id"], condition=Q(is_new=True)),
            models.Index(name="reliable_event_old", fields=["emitted_at"]),
        ]

    def __str__(self) -> str:
        return self.name


class Wait(models.Model):
    """What a job waits for, from before it gives its worker back until it has taken note of it."""

    job = models.OneToOneField(Job, models.CASCADE, primary_key=True, related_name="+", verbose_name=_("job"))
    event = models.CharField(_("event"), max_length=255, null=True)  # noqa: DJ001
    batches = models.JSONField(_("batches"), null=True)  # their ids; it is over when all of them are
    since = models.DateTimeField(_("since"), db_default=Now())
    is_satisfied = models.BooleanField(_("satisfied"), db_default=False)

    class Meta:
        verbose_name = _("wait")
        verbose_name_plural = _("waits")
        indexes = [
            models.Index(name="reliable_wait_event", fields=["event"], condition=Q(event__isnull=False)),
            models.Index(name="reliable_wait_satisfied", fields=["job"], condition=Q(is_satisfied=True)),
        ]

    def __str__(self) -> str:
        return f"#{self.job_id}"


class Batch(models.Model):
    """Jobs that are one thing to somebody: to the job that started them, or to the tasks that follow their end."""

    parent_id = models.BigIntegerField(_("parent"), null=True)  # the job whose children they are
    on_success = models.CharField(_("on success"), max_length=255, null=True)  # noqa: DJ001 - the name of a task
    on_failure = models.CharField(_("on failure"), max_length=255, null=True)  # noqa: DJ001
    on_finish = models.CharField(_("on finish"), max_length=255, null=True)  # noqa: DJ001
    created_at = models.DateTimeField(_("created"), db_default=Now())
    finished_at = models.DateTimeField(_("finished"), null=True)
    succeeded = models.IntegerField(_("succeeded"), null=True)  # known at the end
    failed = models.IntegerField(_("failed"), null=True)

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        indexes = [
            models.Index(name="reliable_batch_parent", fields=["parent_id"], condition=Q(parent_id__isnull=False)),
            models.Index(name="reliable_batch_open", fields=["id"], condition=Q(finished_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"batch {self.pk}"
