"""What people and logs may see of a job's arguments."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

from django_reliable_jobs import registry

MASK = "(sensitive)"


def masked(task: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job as people and logs may see them: without the values of sensitive ones."""
    declared = registry.find(task)
    if declared is None or not declared.sensitive:
        return args, kwargs
    names, hidden = list(declared.signature.parameters), declared.sensitive
    kinds = [each.kind for each in declared.signature.parameters.values()]
    last = kinds.index(Parameter.VAR_POSITIONAL) if Parameter.VAR_POSITIONAL in kinds else len(names) - 1
    hides_others = Parameter.VAR_KEYWORD in kinds and names[kinds.index(Parameter.VAR_KEYWORD)] in hidden
    return (
        [MASK if names[min(place, last)] in hidden else value for place, value in enumerate(args)],
        {name: MASK if name in hidden or (hides_others and name not in names) else kwargs[name] for name in kwargs},
    )
