"""How far running jobs have come."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_reliable_jobs.models.job import Job


class Progress(models.Model):
    """How far an attempt has come, by its own word; written by its worker's heartbeat, the last time when it has ended.

    Keyed by the token of the claim: what a replaced attempt still writes is never shown. No constraint on the job, so
    that whoever locks a job's row holds up no heartbeat.
    """

    token = models.BigIntegerField(_("token"), primary_key=True)
    job = models.ForeignKey(Job, models.CASCADE, db_constraint=False, related_name="progress", verbose_name=_("job"))
    run = models.SmallIntegerField(_("run"))
    claim = models.IntegerField(_("claim"))
    done = models.BigIntegerField(_("done"))
    total = models.BigIntegerField(_("total"), null=True)
    skipped = models.BigIntegerField(_("skipped"), db_default=0)
    rate = models.FloatField(_("per second"), null=True)
    message = models.TextField(_("message"), db_default="")
    told_at = models.DateTimeField(_("told"))

    class Meta:
        verbose_name = _("progress")
        verbose_name_plural = _("progress")

    def __str__(self) -> str:
        return f"#{self.job_id}: {self.done}" + ("" if self.total is None else f" of {self.total}")

    @property
    def time_left(self) -> timedelta | None:
        """How long the rest takes at the present rate; None if nobody can say."""
        if not self.total or not self.rate:
            return None
        return timedelta(seconds=min(max(self.total - self.done, 0) / self.rate, 1e9))
