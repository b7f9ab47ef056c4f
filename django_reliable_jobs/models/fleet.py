"""The processes that share the work, and the lines that jobs wait in."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class TextArrayField(models.Field):  # type: ignore[type-arg]
    """A text[] column. Django's own ArrayField asks projects to install another app."""

    def db_type(self, connection: Any) -> str:
        return "text[]"


class Queue(models.Model):
    """What an operator decided about a queue. A queue without a row is served like any other."""

    name = models.CharField(_("name"), max_length=64, primary_key=True)
    paused_at = models.DateTimeField(_("paused"), null=True, blank=True)
    resume_at = models.DateTimeField(_("resumes"), null=True, blank=True)
    concurrency = models.PositiveIntegerField(_("concurrency"), null=True, blank=True)

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        constraints = [
            models.CheckConstraint(
                name="reliable_queue_resumes_if_paused",
                condition=Q(resume_at__isnull=True) | Q(paused_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.name


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
    started_at = models.DateTimeField(_("started"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())
    expires_at = models.DateTimeField(_("lease ends"))
    lost_at = models.DateTimeField(_("declared lost"), null=True)
    is_idle = models.BooleanField(_("idle"), db_default=False)
    is_stopping = models.BooleanField(_("stopping"), db_default=False)

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

    class Meta:
        verbose_name = _("leader")
        verbose_name_plural = _("leaders")

    def __str__(self) -> str:
        return f"{self.name}: {self.host}:{self.pid}"
