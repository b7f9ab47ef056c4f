"""What is kept of an error, whatever the error does to who looks at it."""

from __future__ import annotations

import traceback
from types import TracebackType

from django_reliable_jobs import arguments

IDLE_IN_TRANSACTION = "25P03"
_SAT_IDLE = (
    "its transaction sat idle for too long, so PostgreSQL ended the session and wrote nothing of it. A transaction that"
    " has saved a checkpoint, or is fenced, may sit idle for no longer than the lease: work first, save last"
)


def message_of(error: BaseException) -> str:
    try:
        return f"{_SAT_IDLE} ({error})" if IDLE_IN_TRANSACTION in sqlstates_of(error) else str(error)
    except BaseException as fault:
        return f"(its __str__ raised {type(fault).__name__})"


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}".splitlines()[0][:500]


def traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, behind_our_frames(error)))
    except BaseException:  # an exception whose own parts raise when they are formatted
        return "".join(traceback.format_tb(error.__traceback__))


def behind_our_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback from where the task's own code begins."""
    trace = error.__traceback__
    while trace and trace.tb_next and str(trace.tb_frame.f_globals.get("__name__")).startswith("django_reliable_jobs."):
        trace = trace.tb_next
    return trace


def stored(text: str, limit: int) -> str:
    """Return the text as PostgreSQL can store it, its middle cut out if it is longer than `limit`."""
    if len(text) > limit:
        half = limit // 2 - 20
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[-half:]}"
    return arguments.without_bad_characters(text)


def sqlstates_of(error: BaseException) -> set[str]:
    """Return the SQLSTATE of each error in the chain that led to this one."""
    return {str(getattr(each, "sqlstate", "")) for each in chain_of(error)}


def chain_of(error: BaseException) -> list[BaseException]:
    """Return the error, what it was raised from or while handling, and so on."""
    chain, seen = [error], {id(error)}
    while (earlier := chain[-1].__cause__ or chain[-1].__context__) is not None and id(earlier) not in seen:
        chain.append(earlier)
        seen.add(id(earlier))
    return chain
