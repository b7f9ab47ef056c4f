"""What is stored. Rows are changed by the functions of `engine`, never by `save()`."""

from __future__ import annotations

from django_reliable_jobs.models.alert import Alert, Notice
from django_reliable_jobs.models.counter import MinuteCount, Pulse
from django_reliable_jobs.models.fleet import Leader, Limit, Pace, Queue, Worker
from django_reliable_jobs.models.job import Attempt, CancelRequest, Checkpoint, Job
from django_reliable_jobs.models.progress import Progress
from django_reliable_jobs.models.schedule import Pinged, Schedule, Slot, SlotRange
from django_reliable_jobs.models.workflow import Batch, Event, Wait

__all__ = [
    "Alert",
    "Attempt",
    "Batch",
    "CancelRequest",
    "Checkpoint",
    "Event",
    "Job",
    "Leader",
    "Limit",
    "MinuteCount",
    "Notice",
    "Pace",
    "Pinged",
    "Progress",
    "Pulse",
    "Queue",
    "Schedule",
    "Slot",
    "SlotRange",
    "Wait",
    "Worker",
]
