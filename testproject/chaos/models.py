"""What the work leaves behind. No row refers to a job by a foreign key: the audit must see what should not be there."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Receipt(models.Model):
    """Proof of an enqueue, written in its transaction: the truth about which jobs must exist."""

    kind = models.CharField(max_length=40)
    job_id = models.BigIntegerField()
    created = models.BooleanField()  # False: `unique` found a live job
    at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.kind} #{self.job_id}"


class Effect(models.Model):
    """One thing that an attempt did. Nothing keeps it from being done twice, so that it can be counted."""

    name = models.CharField(max_length=40)
    job_id = models.BigIntegerField()
    claim = models.IntegerField()  # which claim of the job did it
    item = models.IntegerField(null=True)
    pid = models.IntegerField()
    at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.name} of #{self.job_id}"


class Entry(models.Model):
    """A line in the books of an outside system, which takes the same key once; without a key, one in our own."""

    job_id = models.BigIntegerField(db_index=True)
    what = models.CharField(max_length=20)
    key = models.CharField(max_length=64, unique=True, null=True)  # noqa: DJ001 - as many without as there are
    at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.what} #{self.job_id}"


class Topic(models.Model):
    """What callers change in the transaction in which they enqueue a unique job, and what that job must see."""

    name = models.CharField(max_length=40, primary_key=True)
    version = models.IntegerField(default=0)
    seen = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Cancellation(models.Model):
    """Proof that somebody cancelled a job, written in the same transaction."""

    job_id = models.BigIntegerField()
    at_once = models.BooleanField()  # False: it was running and was asked to end

    def __str__(self) -> str:
        return f"#{self.job_id}"
