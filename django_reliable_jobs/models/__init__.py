"""What is stored. Rows are changed by the functions of `engine`, never by `save()`."""

from __future__ import annotations

from django_reliable_jobs.models.fleet import Leader, Limit, Pace, Queue, Worker
from django_reliable_jobs.models.job import Attempt, CancelRequest, Checkpoint, Job
from django_reliable_jobs.models.schedule import Schedule, Slot, SlotRange

__all__ = [
    "Attempt",
    "CancelRequest",
    "Checkpoint",
    "Job",
    "Leader",
    "Limit",
    "Pace",
    "Queue",
    "Schedule",
    "Slot",
    "SlotRange",
    "Worker",
]
