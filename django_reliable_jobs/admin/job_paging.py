"""Which jobs a page of the list shows: all that match, if they are few; else those of a window of ids.

No page looks through the table for what is rare in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db.models import QuerySet

from django_reliable_jobs.engine import job_search, rare_jobs
from django_reliable_jobs.engine.rare_jobs import Found, Wanted
from django_reliable_jobs.models import Job

LOOKED_AT = 200_000  # jobs for a page, at most
SLACK = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What was asked for: `wanted` by indexes, if those may know it; `is_narrower`: and by more than that."""

    wanted: Wanted | None = None
    is_narrower: bool = False
    is_bounded: bool = False  # an index finds it, however rare it is
    first: int = 0  # no job with a lower id matches


@dataclass(frozen=True, kw_only=True)
class Page:
    """`older`: below this id the next page begins. `count`: how many match in all; None: that is not known."""

    jobs: list[Job]
    older: int | None = None
    is_cut: bool = False  # what is older was not looked at
    leaves_out: bool = False  # there may be more among those that wait
    count: int | None = None


def matching(jobs: QuerySet[Job], question: Question) -> list[int] | None:
    """Return the ids of all the jobs, the newest first, if they are few; None: they may be many."""
    found = None if question.wanted is None else rare_jobs.find(jobs.db, question.wanted)
    return None if found is None or found.leaves_out else _narrowed(jobs, question, found.ids)


def page(jobs: QuerySet[Job], question: Question, *, below: int | None, size: int) -> Page:
    """Return the newest of these jobs with ids below `below`."""
    wanted = question.wanted
    found = None if wanted is None else rare_jobs.find(jobs.db, wanted)
    if found is not None and (not found.leaves_out or _tells_much(question, found)):
        ids = _narrowed(jobs, question, found.ids)
        return _of_few(jobs, ids, below=below, size=size, leaves_out=found.leaves_out)
    if question.is_bounded:
        return _whole(job_search.page(jobs, below=below, floor=None, size=size + 1), size)
    lowest, highest = job_search.ends(jobs.db)
    below, leaves_out = highest + 1 if below is None else min(below, highest + 1), False
    if wanted is not None and found is None:
        below, leaves_out = _nearer(jobs.db, wanted, below)
    windowed = _window(jobs, max(lowest, question.first), below=below, size=size)
    return replace(windowed, leaves_out=leaves_out)


def _tells_much(question: Question, found: Found) -> bool:
    """Return whether to show what was found, and leave out what waits: it is found by its status."""
    return question.wanted is not None and question.wanted.status is None and bool(found.ids)


def _narrowed(jobs: QuerySet[Job], question: Question, ids: list[int]) -> list[int]:
    if not ids or not question.is_narrower:
        return ids
    return list(jobs.filter(pk__in=ids).order_by("-pk").values_list("pk", flat=True))


def _of_few(jobs: QuerySet[Job], found: Sequence[int], *, below: int | None, size: int, leaves_out: bool) -> Page:
    # By what was found, not by the rows: one that has moved on since does not end the list.
    ids = [each for each in found if below is None or each < below]
    return Page(
        jobs=list(jobs.filter(pk__in=ids[:size]).order_by("-pk")),
        older=ids[size - 1] if len(ids) > size else None,
        leaves_out=leaves_out,
        count=len(found),
    )


def _whole(found: list[Job], size: int) -> Page:
    return Page(jobs=found[:size], older=found[size - 1].pk if len(found) > size else None)


def _window(jobs: QuerySet[Job], lowest: int, *, below: int, size: int) -> Page:
    floor = below - LOOKED_AT
    found = job_search.page(jobs, below=below, floor=floor, size=size + 1)
    if len(found) > size or floor <= lowest:
        return _whole(found, size)
    # Where ids were passed over, there is nothing to look at.
    return Page(jobs=found, older=job_search.newest_below(jobs.db, floor) + 1, is_cut=True)


def _nearer(using: str, wanted: Wanted, below: int) -> tuple[int, bool]:
    """Return `below`, or a lower id if no job between the two matches, as a window up there would be empty; and whether
    it leaves out live ones that were not looked at.
    """
    latest = rare_jobs.latest_end(using, wanted)
    beyond = 0 if latest is None else job_search.first_since(using, latest + SLACK)
    if latest is None or beyond > below - LOOKED_AT or (live := rare_jobs.find_live(using, wanted)) is None:
        return below, False
    return min(below, max(beyond, live.ids[0] + 1 if live.ids else 0)), live.leaves_out
