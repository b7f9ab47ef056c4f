"""What steps are written through, and what the history keeps of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from django_reliable_jobs.exceptions import Ending, Suspension
from django_reliable_jobs.replay import Asked, Stored
from django_reliable_jobs.retry import RetryPolicy

WRITE_PAUSES = (0.1, 0.5, 2.0)  # seconds between tries to write what came of a call


class StepRecord(NamedTuple):
    """What the history keeps of a step."""

    name: str
    function: str | None
    state: str
    value: str = "null"  # JSON
    args: str | None = None  # JSON, if there is something to undo
    undo: str | None = None
    is_atomic: bool = False
    tries: int = 1
    took: float = 0.0  # seconds of the last try
    error: str | None = None
    kind: str = "step"
    undo_state: str | None = None


def deleted(count: int) -> dict[str, Any]:
    """Return what ChildFailed tells of children whose rows are gone, and with them their ids."""
    return {"job": None, "status": "deleted", "reason": f"rows that are gone: {count}"}


class StepPort(Protocol):
    """What steps are written through; a worker puts it into the context."""

    policy: RetryPolicy
    module: str
    running: Any  # the step that is being tried
    suspension: Suspension | None
    ending: Ending | None  # that a step raised: it acts on the job, whoever catches it
    fault: Exception | None  # for which the history lacks what the code asked for

    def ask(self, name: str, kind: str, function: str | None = None) -> Asked: ...
    def refuse_in_transaction(self, what: str) -> None: ...
    def record(self, record: StepRecord) -> None: ...
    def try_to_record(self, record: StepRecord) -> bool: ...
    def recording(self) -> AbstractContextManager[Callable[[StepRecord], None]]: ...
    def sleep(self, name: str, until: float | datetime) -> float: ...
    def wait_for_event(self, name: str, event: str, timeout: float | None) -> tuple[Stored, float | None]: ...
    def start_children(self, name: str, placement: Any, calls: Any) -> dict[str, Any]: ...
    def wait_for_batches(
        self, name: str, batches: Sequence[int], jobs: Sequence[int] | None, count: int = 0
    ) -> Stored | None: ...
    def results(self, batch_id: int) -> Iterator[Any]: ...
