"""Tables that the tasks of the tests write to. The app has no migrations: the test runner makes them."""

from __future__ import annotations

from django.db import models


class ClockTimestamp(models.Func):
    function = "clock_timestamp"
    output_field = models.DateTimeField()


class Effect(models.Model):
    """One thing that a task did; nothing keeps it from being done twice, so that a test can see it."""

    name = models.CharField(max_length=200)
    job_id = models.BigIntegerField(null=True)
    attempt = models.IntegerField(null=True)
    pid = models.IntegerField(null=True)
    thread = models.CharField(max_length=100, default="")
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Span(models.Model):
    """From when to when an attempt was seen to run, by the database's clock."""

    job_id = models.BigIntegerField()
    claim = models.IntegerField()
    pid = models.IntegerField()
    began_at = models.DateTimeField(db_default=ClockTimestamp())
    seen_at = models.DateTimeField(db_default=ClockTimestamp())
    has_ended = models.BooleanField(db_default=False)

    def __str__(self) -> str:
        return f"#{self.job_id}, claim {self.claim}"
