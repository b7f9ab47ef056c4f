"""The backend for Django's Tasks framework.

    TASKS = {"default": {"BACKEND": "django_reliable_jobs.backend.ReliableBackend"}}

A Task of the framework becomes a task of ours when it is first needed: under its module path, with what the settings
and, where the framework allows it, its own decorator say of retries, limits and the rest. From there on its jobs are
jobs like all others: one queue, one worker, one admin.
"""

from __future__ import annotations

from django_reliable_jobs.backend.policies import ReliableTask
from django_reliable_jobs.backend.reliable import ReliableBackend

__all__ = ["ReliableBackend", "ReliableTask"]
