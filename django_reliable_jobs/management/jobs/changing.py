"""`jobs retry`, `jobs cancel`, `jobs prune`: jobs named by id, or chosen by what they are and changed in batches."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from django.core.management.base import CommandError

from django_reliable_jobs.conf import settings
from django_reliable_jobs.engine import inspection, lifecycle, maintenance, revival
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_filters, add_verb, job_id
from django_reliable_jobs.management.jobs.report import Report
from django_reliable_jobs.models import Job
from django_reliable_jobs.processes.tally import announce_cancelled

BATCH = 500
MOST_NAMED = 20  # ids in one sentence

_RETRIED = [Job.Status.DEAD.value, Job.Status.CANCELLED.value]
_CANCELLED = [Job.Status.SCHEDULED.value, Job.Status.READY.value, Job.Status.RUNNING.value, Job.Status.WAITING.value]


def add_retry(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "retry",
        retry,
        "Make ended jobs ready again, with all their attempts; a retry that waits becomes due now.",
    )
    _add_choice(parser, _RETRIED)
    parser.add_argument(
        "--from-start", action="store_true", help="begin a new run: leave checkpoints and results of steps behind"
    )
    parser.add_argument(
        "--undo", action="store_true", help="go on undoing what jobs with these ids did and could not undo"
    )


def add_cancel(verbs: Verbs) -> None:
    parser = add_verb(verbs, "cancel", cancel, "Cancel jobs: at once what waits, by a request what runs.")
    _add_choice(parser, _CANCELLED)
    parser.add_argument("--reason", default="cancelled by `manage.py jobs cancel`", help="kept with the job")
    parser.add_argument("--children", action="store_true", help="the jobs that they started, too; with ids only")


def add_prune(verbs: Verbs) -> None:
    add_verb(verbs, "prune", prune, "Delete ended jobs older than the setting RETENTION; workers do so too.")


def retry(using: str, options: Options) -> Report:
    if options["undo"]:
        return _retry_undo(using, _named(options))
    if options["ids"]:
        return _retry_named(using, _named(options), from_start=options["from_start"])
    counts: Counter[str] = Counter(retried=0, live_duplicate=0, not_undone=0, moved_on=0)
    for ids in _chosen(using, options, "retry"):
        done = revival.revive(using, ids, from_start=options["from_start"])
        came_to = {
            "retried": len(done.revived),
            "live_duplicate": len(done.has_live_duplicate),
            "not_undone": len(done.is_not_undone),
        }
        counts.update(came_to, moved_on=len(ids) - sum(came_to.values()))
    return Report(dict(counts), _sentences(counts, _RETRY_SENTENCES))


def cancel(using: str, options: Options) -> Report:
    if options["ids"]:
        return _cancel_named(using, _named(options), options["reason"], children=options["children"])
    counts: Counter[str] = Counter(cancelled=0, asked=0, moved_on=0)
    for ids in _chosen(using, options, "cancel"):
        done = lifecycle.cancel(using, ids, reason=options["reason"])
        announce_cancelled(using, done.cancelled)
        cancelled, asked = len(done.cancelled), len(done.asked)
        counts.update(cancelled=cancelled, asked=asked, moved_on=len(ids) - cancelled - asked)
    return Report(dict(counts), _sentences(counts, _CANCEL_SENTENCES))


def prune(using: str, options: Options) -> Report:
    deleted = maintenance.prune(using)
    kept = [status.value for status in Job.ENDED if settings.retention_of(status) is None]
    lines = [f"Deleted {deleted} ended jobs that were older than RETENTION."]
    if kept:
        lines.append(f"Kept whatever their age: {', '.join(kept)}.")
    return Report({"deleted": deleted}, lines)


_RETRY_SENTENCES = {
    "retried": "Ready again: {}.",
    "live_duplicate": "Left as they are, since a live job holds their unique key: {}.",
    "not_undone": "Left as they are, since they could not undo what they did (see `jobs retry --undo`): {}.",
    "moved_on": "Moved on before they were reached: {}.",
}
_CANCEL_SENTENCES = {
    "cancelled": "Cancelled: {}.",
    "asked": "Asked to end, since they run; each ends at its next safe point: {}.",
    "moved_on": "Moved on before they were reached, or asked to end before: {}.",
}


def _retry_named(using: str, ids: list[int], *, from_start: bool) -> Report:
    done = revival.revive(using, ids, from_start=from_start)
    left = set(ids) - {*done.revived, *done.has_live_duplicate, *done.is_not_undone}
    statuses = inspection.find_statuses(using, left)
    unknown = sorted(left - set(statuses))
    lines = _list_ids("Ready again", done.revived)
    problems = [
        *_list_ids("A live job holds the unique key of", done.has_live_duplicate),
        *_list_ids(
            "Could not undo what it did (--undo goes on with that, --from-start forgets it)", done.is_not_undone
        ),
        *(f"{job} is {status} and has not ended" for job, status in sorted(statuses.items())),
        *_list_ids("There is no job", unknown),
    ]
    data = {
        "retried": sorted(done.revived),
        "live_duplicate": sorted(done.has_live_duplicate),
        "not_undone": sorted(done.is_not_undone),
        "not_ended": statuses,
        "unknown": unknown,
    }
    return Report(data, lines, _failure("retried", len(ids) - len(done.revived), len(ids), problems))


def _retry_undo(using: str, ids: list[int]) -> Report:
    done = revival.retry_undo(using, ids)
    left = sorted(set(ids) - set(done))
    problems = _list_ids("Nothing that could not be undone in", left)
    lines = _list_ids("They go on undoing", done)
    return Report(
        {"undoing": sorted(done), "nothing_to_undo": left}, lines, _failure("retried", len(left), len(ids), problems)
    )


def _cancel_named(using: str, ids: list[int], reason: str, *, children: bool) -> Report:
    done = lifecycle.cancel(using, ids, reason=reason, children=children)
    announce_cancelled(using, done.cancelled)
    left = set(ids) - {*done.cancelled, *done.asked}
    statuses = inspection.find_statuses(using, left)
    unknown = sorted(left - set(statuses))
    ended = {job: status for job, status in sorted(statuses.items()) if status in Job.ENDED}
    before = [job for job, status in ended.items() if status == Job.Status.CANCELLED]
    too_late = {job: status for job, status in ended.items() if status != Job.Status.CANCELLED}
    asked_before = sorted(set(statuses) - set(ended))
    lines = [
        *_list_ids("Cancelled", done.cancelled),
        *_list_ids("Asked to end, at the next safe point", done.asked),
        *_list_ids("Had been asked to end before", asked_before),
        *_list_ids("Had been cancelled before", before),
    ]
    problems = [
        *(f"{job} has ended already: {status}" for job, status in too_late.items()),
        *_list_ids("There is no job", unknown),
    ]
    data = {
        "cancelled": sorted(done.cancelled),
        "asked": sorted(done.asked),
        "asked_before": asked_before,
        "ended": ended,
        "unknown": unknown,
    }
    return Report(data, lines, _failure("cancelled", len(too_late) + len(unknown), len(ids), problems))


def _add_choice(parser: argparse.ArgumentParser, statuses: list[str]) -> None:
    parser.add_argument("ids", type=job_id, nargs="*", metavar="ID")
    add_filters(parser, statuses)
    parser.add_argument("--yes", action="store_true", help="change the jobs of --status without asking")


def _named(options: Options) -> list[int]:
    if options["status"] or options["queue"] or options["task"]:
        raise CommandError("Name jobs by id, or choose them with --status, --queue and --task; not both.")
    return sorted(set(options["ids"]))


def _chosen(using: str, options: Options, verb: str) -> Iterator[Sequence[int]]:
    """Yield the ids of the jobs that are chosen now, in batches; each at most once, however their status changes."""
    if not options["status"]:
        raise CommandError(f"Name jobs by id, or choose them with --status: manage.py jobs {verb} --status STATUS")
    jobs = inspection.find_jobs(
        using, status=options["status"], queue_name=options["queue"], task=options["task"]
    ).order_by("id")
    newest = jobs.values_list("id", flat=True).last()
    if newest is None:
        return
    if not options["yes"]:
        _ask(f"{verb.capitalize()} {jobs.count()} jobs that are {options['status']}? [y/N] ")
    last = 0
    while ids := list(jobs.filter(id__gt=last, id__lte=newest).values_list("id", flat=True)[:BATCH]):
        yield ids
        last = ids[-1]


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise CommandError("Nobody can be asked here, so nothing was changed. Add --yes.")
    if input(question).strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was changed.")


def _sentences(counts: Counter[str], sentences: dict[str, str]) -> list[str]:
    if not any(counts.values()):
        return ["No job matches."]
    first, *others = sentences
    return [sentences[first].format(counts[first])] + [
        sentences[name].format(counts[name]) for name in others if counts[name]
    ]


def _list_ids(words: str, ids: Sequence[int]) -> list[str]:
    if not ids:
        return []
    shown = ", ".join(str(each) for each in sorted(ids)[:MOST_NAMED])
    return [f"{words}: {shown}" + (f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else "")]


def _failure(done: str, failed: int, asked: int, problems: list[str]) -> str | None:
    if not problems:
        return None
    return f"Not {done}: {failed} of {asked}. {'. '.join(problems)}."
