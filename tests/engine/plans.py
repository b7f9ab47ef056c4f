"""How PostgreSQL runs the engine's statements: their plans, carried out and measured, read while the engine runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

JOBS = "django_reliable_jobs_job"
JIT_ABOVE = 100_000  # PostgreSQL's default; to compile a statement takes longer than to run one of ours


@dataclass
class Plans:
    """The plans of the statements that touched the table of jobs, with what each step met."""

    roots: list[dict[str, Any]] = field(default_factory=list)

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield every step of every plan."""
        for root in self.roots:
            yield from _steps(root)

    def indexes(self) -> set[str]:
        """Return the indexes that jobs were found by."""
        found = {step.get("Index Name") for step in self.steps() if "Scan" in step["Node Type"]}
        return {name for name in found if name is not None}

    def highest_cost(self) -> float:
        """Return what the planner thinks that the dearest statement costs; above JIT_ABOVE it is compiled first."""
        return max((root["Total Cost"] for root in self.roots), default=0.0)

    def faults(self, most: int) -> list[str]:
        """Return what is wrong with them, if a step over jobs may meet at most so many rows."""
        return [fault for step in self.steps() if (fault := _fault(step, most))]


@contextmanager
def watched(*, prepared: bool = False) -> Iterator[Plans]:
    """Collect the plans of the statements that are executed inside the block; needs a transaction.

    `prepared`: the plan that serves any parameters, as a session that has prepared a statement may come to use.
    """
    plans = Plans()
    plan_of = _plan_of_any if prepared else _plan

    def watch(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if JOBS in sql and sql.split(None, 1)[0] in ("WITH", "SELECT", "INSERT", "UPDATE", "DELETE"):
            plans.roots.append(plan_of(sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        yield plans


def _plan(sql: str, params: Any) -> dict[str, Any]:
    # Carried out, and undone: the statement itself follows.
    with connection.connection.cursor() as cursor:
        cursor.execute("SAVEPOINT plan")
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
        [[plan]] = cursor.fetchone()
        cursor.execute("ROLLBACK TO SAVEPOINT plan")
        cursor.execute("RELEASE SAVEPOINT plan")
    root: dict[str, Any] = plan["Plan"]
    return root


def _plan_of_any(sql: str, params: dict[str, Any]) -> dict[str, Any]:
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", sql).replace("%%", "%")
    with connection.connection.cursor() as cursor:
        cursor.execute("SAVEPOINT plan")
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE probe AS {numbered}")
    given = f"({', '.join(['%s'] * len(names))})" if names else ""
    with connection.connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE probe{given}", [params[name] for name in names]
        )
        [[plan]] = cursor.fetchone()
        cursor.execute("ROLLBACK TO SAVEPOINT plan")
        cursor.execute("RELEASE SAVEPOINT plan")
        cursor.execute("DEALLOCATE probe")
    root: dict[str, Any] = plan["Plan"]
    return root


def _steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for below in step.get("Plans", ()):
        yield from _steps(below)


def _fault(step: dict[str, Any], most: int) -> str | None:
    kind = step["Node Type"]
    met = (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"]
    if step.get("Relation Name") == JOBS and kind == "Seq Scan":
        return "it reads the whole table of jobs"
    if step.get("Relation Name") == JOBS and met > most:
        return f"{kind} with {step.get('Index Name')} meets {met:.0f} jobs: {step.get('Filter')}"
    if kind in ("Sort", "Incremental Sort") and met > most:
        return f"it sorts {met:.0f} rows by {step['Sort Key']}"
    return None
