"""Tables that the tasks of the tests write to. The app has no migrations: the test runner makes them."""

from __future__ import annotations

import uuid

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


def random_bytes() -> bytes:
    return uuid.uuid4().bytes


class Item(models.Model):
    """A row to go through in batches, with keys that are good for it and others that are not."""

    code = models.CharField(max_length=50, unique=True)
    shelf = models.IntegerField(default=0)
    place = models.IntegerField(default=0)
    made_at = models.DateTimeField(db_default=ClockTimestamp(), unique=True)
    identifier = models.UUIDField(default=uuid.uuid4, unique=True)
    price = models.DecimalField(max_digits=20, decimal_places=5, unique=True, null=True)
    payload = models.BinaryField(unique=True, default=random_bytes)
    touched = models.IntegerField(default=0)

    class Meta:
        ordering = ["-code"]
        constraints = [
            models.UniqueConstraint(name="tests_item_place", fields=["shelf", "place"]),
            models.UniqueConstraint(name="tests_item_some", fields=["touched"], condition=models.Q(touched__lt=0)),
        ]

    def __str__(self) -> str:
        return self.code


class Part(models.Model):
    """Of an item; several make a join give it several times."""

    item = models.ForeignKey(Item, models.CASCADE, related_name="parts")
    name = models.CharField(max_length=50, default="")

    def __str__(self) -> str:
        return self.name


class SpecialItem(Item):
    """Its primary key is the link to its parent."""

    note = models.CharField(max_length=50, default="")


class Tally(models.Model):
    """A row that counts how often it was touched, made by the hundred thousand."""

    touched = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"#{self.pk}: {self.touched}"


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
