"""`jobs check`: what a person or a monitor should know of; fails if there is something.

The exit code is what Nagios and its like expect: 0 all is well, 1 a warning, 2 critical, 3 not known.
"""

from __future__ import annotations

from django.db import DataError, OperationalError, ProgrammingError

from django_reliable_jobs.engine import findings
from django_reliable_jobs.engine.alerts import Finding
from django_reliable_jobs.management.console import migrate_command
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.report import Report, printable

WARNING, CRITICAL, UNKNOWN = 1, 2, 3


def add_check(verbs: Verbs) -> None:
    add_verb(verbs, "check", check, "Look for what needs a person, and fail if there is something.")


def check(using: str, options: Options) -> Report:
    try:
        found = findings.find_all(using)
    except OperationalError as error:
        return _unanswered(CRITICAL, "critical", f"The database {using!r} did not answer: {str(error).strip()}")
    except ProgrammingError as error:
        if getattr(error.__cause__, "sqlstate", None) not in ("42P01", "42703"):  # a table, a column is missing
            raise
        missing = str(error).splitlines()[0]
        return _unanswered(
            UNKNOWN, "unknown", f"Run {migrate_command(using)}: the database {using!r} is not ready ({missing})."
        )
    except DataError as error:
        return _unanswered(UNKNOWN, "unknown", f"A row can't be judged: {str(error).strip()}")
    if not found:
        return Report({"status": "ok", "problems": []}, ["Nothing needs attention."])
    is_critical = not findings.is_healthy(found)
    return Report(
        {
            "status": "critical" if is_critical else "warning",
            "problems": [findings.as_json(each) for each in found],
        },
        [_line(each) for each in found],
        failure="1 thing needs attention." if len(found) == 1 else f"{len(found)} things need attention.",
        exit_code=CRITICAL if is_critical else WARNING,
    )


def _line(finding: Finding) -> str:
    return printable(f"{finding.severity.upper()} {finding.kind}: {finding.message}")


def _unanswered(exit_code: int, status: str, sentence: str) -> Report:
    return Report({"status": status, "problems": []}, [], failure=sentence, exit_code=exit_code)
