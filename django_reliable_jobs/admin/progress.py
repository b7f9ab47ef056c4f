"""How far a job is, on its page."""

from __future__ import annotations

from datetime import timedelta

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_reliable_jobs.admin.words import done_in_words, span_in_words
from django_reliable_jobs.engine import progress
from django_reliable_jobs.engine.inspection import as_local
from django_reliable_jobs.engine.progress import Loop, Standing
from django_reliable_jobs.models import Job, Progress

MOST_FAULTS = 20


def standing_of(job: Job) -> Standing:
    """Return how far a job is; read once for a page."""
    known: Standing | None = getattr(job, "_standing", None)
    if known is None:
        known = progress.standing_of(job._state.db or "default", job)
        job._standing = known  # type: ignore[attr-defined]
    return known


def has_told(job: Job) -> bool:
    """Return whether there is anything to show of how far a job is."""
    standing = standing_of(job)
    return standing.progress is not None or standing.saved_at is not None


def how_far(job: Job) -> SafeString:
    """Return a bar, the rate and the time left, the last checkpoint, and what was skipped."""
    standing = standing_of(job)
    lines = [] if standing.progress is None else _told(standing.progress, is_running=job.status == Job.Status.RUNNING)
    if standing.saved_at is not None:
        lines.append(format_html(_("last checkpoint: {} at {}"), standing.checkpoint, as_local(standing.saved_at)))
    lines += [_of_loop(loop) for loop in standing.loops]
    return format_html_join("", "<div>{}</div>", ((line,) for line in lines))


def _told(told: Progress, *, is_running: bool) -> list[SafeString | str]:
    lines: list[SafeString | str] = [done_in_words(told.done, told.total, told.skipped)]
    if told.total:
        lines.insert(0, format_html('<progress value="{}" max="{}"></progress>', told.done, told.total))
    if is_running and told.rate:
        left = "" if told.time_left is None else _(", about %s left") % _rounded(told.time_left)
        lines.append(_("{:,.1f} per second").format(told.rate) + left)
    lines.append(_("told at {}").format(as_local(told.told_at)))
    return [*lines, told.message] if told.message else lines


def _of_loop(loop: Loop) -> SafeString:
    told = done_in_words(loop.done, None, loop.skipped)
    faults = format_html_join(
        "", "<li>{}: {}</li>", ((each.get("item"), each.get("error")) for each in loop.faults[:MOST_FAULTS])
    )
    return format_html("{}: {}<ul>{}</ul>" if faults else "{}: {}{}", loop.name, told, faults)


def _rounded(span: timedelta) -> str:
    return span_in_words(timedelta(seconds=round(span.total_seconds())))
