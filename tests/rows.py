"""Rows as dicts of their columns, to compare what was returned with what is in the table."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from django_reliable_jobs.models import Job


def values(row: Model) -> dict[str, Any]:
    return {each.attname: getattr(row, each.attname) for each in row._meta.concrete_fields}


def in_the_table(job: Job) -> dict[str, Any]:
    return values(Job.objects.get(pk=job.pk))
