"""Kills the worker, as `kill -9` does, at a chosen moment of a chosen job: once for each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django_reliable_jobs.context import current_job
from django_reliable_jobs.engine import waits
from django_reliable_jobs.engine.steps import StepPort
from django_reliable_jobs.processes.undoing import Undoer
from django_reliable_jobs.steps import RunningStep

VARIABLE = "TESTS_KILL"  # JSON: the folder for marks, and the moment for each job's id


def environment(folder: Path, moments: dict[int, str]) -> dict[str, str]:
    """Return the environment of workers that are to be killed."""
    return {VARIABLE: json.dumps({"folder": str(folder), "moments": moments})}


def was_killed(folder: Path, job_id: int) -> bool:
    return (folder / str(job_id)).exists()


def install() -> None:
    """Set the traps, in a worker that is to be killed. Called when the tasks are loaded."""
    if VARIABLE not in os.environ:
        return
    given = json.loads(os.environ[VARIABLE])
    trap = Trap(Path(given["folder"]), {int(job_id): moment for job_id, moment in given["moments"].items()})
    trap.around(RunningStep, "_call", lambda self: self._record.name)
    trap.around(RunningStep, "_keep", lambda self, record: f"{record.name} kept")
    trap.around(StepPort, "record", lambda self, record: f"{record.name} recorded")
    trap.around(StepPort, "wait_for_event", lambda self, name, event, timeout: "wait")
    trap.around(Undoer, "_undo", lambda self, step: f"undo {step.name}")
    trap.around(StepPort, "record_undo", lambda self, name, *_: f"undo {name} recorded")
    trap.around(waits, "wake_these", lambda using, job_ids: "waiting", job_of=lambda using, job_ids: job_ids[0])


class Trap:
    """Knows which job dies when."""

    def __init__(self, folder: Path, moments: dict[int, str]) -> None:
        self._folder = folder
        self._moments = moments

    def around(
        self,
        owner: Any,
        name: str,
        what: Callable[..., str],
        job_of: Callable[..., int] = lambda *_: current_job().id,
    ) -> None:
        """Set traps before and after a function: `before WHAT`, `after WHAT`."""
        function = getattr(owner, name)

        def trapped(*args: Any, **kwargs: Any) -> Any:
            job_id = job_of(*args, **kwargs)
            self.spring(job_id, f"before {what(*args, **kwargs)}")
            result = function(*args, **kwargs)
            self.spring(job_id, f"after {what(*args, **kwargs)}")
            return result

        setattr(owner, name, trapped)

    def spring(self, job_id: int, moment: str) -> None:
        if self._moments.get(job_id) != moment:
            return
        try:
            (self._folder / str(job_id)).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
