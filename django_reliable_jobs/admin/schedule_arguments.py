"""The tasks that a schedule may name, and its arguments as people may see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

from django.utils.text import Truncator

from django_reliable_jobs import masking, registry
from django_reliable_jobs.masking import MASK
from django_reliable_jobs.models import Schedule
from django_reliable_jobs.registry import Task

LONGEST_CHOICE = 100  # characters
OWN = "django_reliable_jobs."  # before the names of the package's own tasks


def task_choices(current: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the declared tasks, and the one that a row has even if it is not declared any more.

    The package's own are for the package.
    """
    yield "", "---------"
    declared = registry.find(current) if current else None
    if current and declared is None:
        yield current, f"{current} (not declared)"
    for task in registry.all_tasks():
        if task is declared or not task.name.startswith(OWN):
            yield task.name, Truncator(f"{task.name}{_parameters(task)}").chars(LONGEST_CHOICE)


def shown_arguments(schedule: Schedule) -> dict[str, Any]:
    """Return the arguments of a schedule, without the values of those that its task declares as sensitive."""
    return masking.masked(schedule.task, [], schedule.kwargs)[1]


def with_kept_values(schedule: Schedule, task: str, entered: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was entered, with the values that were not shown where they were left as they are.

    Raises ValueError if they are for another task, which may show them.
    """
    shown = shown_arguments(schedule) if schedule.pk else {}
    kept = {name for name, value in entered.items() if value == MASK and shown.get(name) == MASK}
    if kept and registry.find(task) is not registry.find(schedule.task):
        raise ValueError(", ".join(sorted(kept)))
    return {name: schedule.kwargs[name] if name in kept else value for name, value in entered.items()}


def _parameters(task: Task[..., Any]) -> Signature:
    """Return the names and defaults of a task's parameters; their types are often long."""
    plain = [each.replace(annotation=Parameter.empty) for each in task.signature.parameters.values()]
    return Signature(plain)
