"""`jobs status`: queues, limits that hold jobs back, workers, dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django_reliable_jobs.engine import inspection, limits
from django_reliable_jobs.engine.inspection import QueueStatus, UnknownTasks, WorkerStatus, as_local, as_pause
from django_reliable_jobs.management.jobs.arguments import Options, Verbs, add_verb
from django_reliable_jobs.management.jobs.limiting import limit_data, limit_lines
from django_reliable_jobs.management.jobs.moments import span
from django_reliable_jobs.management.jobs.report import Report, printable, table
from django_reliable_jobs.models import Queue

MOST_DEAD_TASKS = MOST_UNKNOWN_TASKS = 5

_STATES = {"silent": "silent: its lease ran out", "lost": "lost: its jobs are being taken back"}


def add_status(verbs: Verbs) -> None:
    add_verb(verbs, "status", status, "Show what is in the queues and who works on them.")


def status(using: str, options: Options) -> Report:
    queues, workers = inspection.queues(using), inspection.workers(using)
    dead, everything = inspection.dead_by_task(using), inspection.pause_of_all(using)
    unknown = inspection.unknown_tasks(using)
    waited_for = [each for each in limits.statuses(using) if each.waiting]
    return Report(
        data={
            "all_paused_at": None if everything is None else everything.paused_at,
            "queues": [_queue_data(each) for each in queues],
            "limits": [limit_data(each) for each in waited_for],
            "unknown_tasks": [asdict(each) for each in unknown],
            "workers": [_worker_data(each) for each in workers],
            "dead": {"total": sum(dead.values()), "by_task": dead},
        },
        lines=[
            *_pause_lines(everything),
            *_queue_lines(queues, options["width"]),
            "",
            *([*limit_lines(waited_for, options["width"]), ""] if waited_for else []),
            *_worker_lines(workers, options["width"]),
            "",
            *_unknown_lines(unknown),
            *_dead_lines(dead),
        ],
    )


def _queue_data(queue: QueueStatus) -> dict[str, Any]:
    data = asdict(queue)
    oldest = data.pop("oldest")
    return {**data, "oldest_seconds": None if oldest is None else oldest.total_seconds()}


def _worker_data(worker: WorkerStatus) -> dict[str, Any]:
    data = asdict(worker)
    return {**data, "heartbeat_age_seconds": data.pop("heartbeat_age").total_seconds()}


def _pause_lines(everything: Queue | None) -> list[str]:
    return [] if everything is None else [f"All queues are {as_pause(everything, 'jobs resume --all')}.", ""]


def _queue_lines(queues: list[QueueStatus], width: int | None) -> list[str]:
    rows = [
        [each.name, each.ready, each.running, each.scheduled, span(each.oldest), each.workers, _queue_state(each)]
        for each in queues
    ]
    headings = ["QUEUE", "READY", "RUNNING", "SCHEDULED", "WAITS", "WORKERS", "STATE"]
    return table(headings, rows, width=width, cut="QUEUE") if rows else ["No queue has live jobs."]


def _queue_state(queue: QueueStatus) -> str:
    if queue.paused_at is not None:
        return f"paused until {as_local(queue.resume_at)}" if queue.resume_at else "paused"
    if queue.workers == 0:
        return "no worker serves it"
    return "served" if queue.concurrency is None else f"served, {queue.concurrency} at once"


def _worker_lines(workers: list[WorkerStatus], width: int | None) -> list[str]:
    if not workers:
        return ["No worker is running. Start one: manage.py runworker"]
    rows = [
        [
            f"{each.host}:{each.pid}",
            _served(each),
            each.threads,
            each.running,
            f"{span(each.heartbeat_age)} ago",
            _STATES.get(each.state, each.state),
        ]
        for each in workers
    ]
    return table(["WORKER", "QUEUES", "THREADS", "RUNNING", "HEARTBEAT", "STATE"], rows, width=width, cut="QUEUES")


def _served(worker: WorkerStatus) -> str:
    served = "all" if worker.queues is None else ", ".join(worker.queues)
    return f"{served} except {', '.join(worker.excluded_queues)}" if worker.excluded_queues else served


def _unknown_lines(unknown: list[UnknownTasks]) -> list[str]:
    if not unknown:
        return []
    lines = ["Tasks that no worker of their queue knows; is the release that declares them deployed?"]
    shown = unknown[:MOST_UNKNOWN_TASKS]
    lines += [f"  {each.jobs:>6}  {printable(each.task)} in {printable(each.queue_name)}" for each in shown]
    return (
        [*lines, f"          and {len(unknown) - len(shown)} more", ""] if len(unknown) > len(shown) else [*lines, ""]
    )


def _dead_lines(dead: dict[str, int]) -> list[str]:
    if not dead:
        return ["No dead letters."]
    lines = [f"Dead letters: {sum(dead.values())}. List them: manage.py jobs list --status DEAD"]
    shown = list(dead.items())[:MOST_DEAD_TASKS]
    lines += [f"  {number:>6}  {printable(task)}" for task, number in shown]
    others = sum(dead.values()) - sum(number for _, number in shown)
    return [*lines, f"  {others:>6}  of other tasks"] if others else lines
