"""`jobs check`: what a person or a monitor should know of; fails if there is something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django_reliable_jobs.engine import schedule_upkeep, schedules
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.report import Report


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be: a kind for scripts, and a sentence with the way out."""

    kind: str
    sentence: str


def add_check(verbs: Verbs) -> None:
    add_verb(verbs, "check", check, "Look for what needs a person, and fail if there is something.")


def check(using: str, options: Options) -> Report:
    problems = [problem for probe in PROBES for problem in probe(using)]
    return Report(
        {"problems": [vars(problem) for problem in problems]},
        [problem.sentence for problem in problems] or ["Nothing needs attention."],
        failure=_count(len(problems)) if problems else None,
    )


def _count(problems: int) -> str:
    return "1 thing needs attention." if problems == 1 else f"{problems} things need attention."


def broken_schedules(using: str) -> list[Problem]:
    """Return the schedules that can't be decided."""
    return [
        Problem(
            "schedule_broken",
            f"The schedule {schedule.name} is broken since {as_local(schedule.error_at)}: {schedule.error}",
        )
        for schedule in schedules.find_broken(using)
        if schedule.error_at is not None
    ]


def moved_schedules(using: str) -> list[Problem]:
    """Return the schedules whose next runs are not those that were planned."""
    problems = []
    for moved in schedule_upkeep.find_moved(using):
        planned = ", ".join(map(as_local, moved.planned)) or "never"
        now = ", ".join(map(as_local, moved.now)) or "never"
        problems.append(
            Problem(
                "schedule_moved",
                f"The schedule {moved.name} was to run at {planned}; now it will run at {now}. Its row was changed in"
                " SQL, or croniter or the time zone database was upgraded.",
            )
        )
    return problems


def missing_scheduler(using: str) -> list[Problem]:
    """Return a problem if a slot is overdue and nobody leads."""
    overdue = schedules.find_overdue_without_leader(using)
    if overdue is None:
        return []
    return [
        Problem(
            "no_scheduler",
            f"No scheduler is running, and {overdue.name} was due at {as_local(overdue.next_run_at)}."  # type: ignore[arg-type]
            " Start one: `manage.py runscheduler`, or `runworker --with-scheduler`.",
        )
    ]


PROBES: list[Callable[[str], list[Problem]]] = [broken_schedules, moved_schedules, missing_scheduler]
