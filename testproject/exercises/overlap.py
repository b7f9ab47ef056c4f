"""Exercise 4: a job that takes longer than its interval, under each rule for overlap."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from django_reliable_jobs import Every
from django_reliable_jobs.engine import schedules
from django_reliable_jobs.engine.transaction import default_database
from django_reliable_jobs.models import Job, Schedule, Slot, SlotRange
from django_reliable_jobs.schedule_options import ScheduleOptions
from testproject.exercises.stage import Timeline, expect, manage, wait_for, wait_until_there
from testproject.exercises.tasks import takes_long

RULES = ("allow", "skip", "queue", "replace")
INTERVAL = 1.0
TAKES = 2.4
SLOTS = 6
CELL = 0.2  # seconds that one character stands for


def run(timeline: Timeline) -> None:
    """Let four schedules run side by side, then draw what became of their slots."""
    clean_up()
    timeline.scene(f"Each schedule is due every {INTERVAL:.0f} s, and its job takes {TAKES} s. Wait {SLOTS + 3} s …")
    try:
        with manage("runworker", "--queue", "exercise", "--threads", "16", "--with-scheduler"):
            wait_until_there(with_scheduler=True)
            first = timezone.now().replace(microsecond=0) + timedelta(seconds=3)  # a moment from now
            made = {rule: make_schedule(rule, first) for rule in RULES}
            last = first + timedelta(seconds=INTERVAL * (SLOTS - 1))
            wait_for(lambda: all(is_decided(schedule, last) for schedule in made.values()), "the slots to be decided")
            jobs_of = Job.objects.filter(queue_name="exercise", slot__lte=last)
            wait_for(lambda: not jobs_of.filter(status__in=Job.LIVE).exists(), "the jobs to end")
        counts = {rule: draw(timeline, schedule, rule, first, last) for rule, schedule in made.items()}
        judge(timeline, counts)
    finally:
        clean_up()


def make_schedule(rule: str, begins: datetime) -> Schedule:
    """All have the same slots, also if a second ends while they are made."""
    options = ScheduleOptions(
        recurrence=Every(seconds=int(INTERVAL)),
        kwargs={"seconds": TAKES},
        overlap=rule,
        catch_up="all",  # on a busy machine two slots may be decided together
        queue_name="exercise",
        starts_at=begins,
        ends_at=begins + timedelta(seconds=INTERVAL * (SLOTS - 1)),
    )
    return schedules.create(default_database(), name=f"exercise-{rule}", task=takes_long.name, options=options)


def is_decided(schedule: Schedule, last: datetime) -> bool:
    return Schedule.objects.filter(pk=schedule.pk, decided_until__gte=last).exists()


def draw(timeline: Timeline, schedule: Schedule, rule: str, first: datetime, last: datetime) -> dict[str, int]:
    """Print a line for each slot: when its job waited and ran, or why it has none."""
    timeline.scene(f"overlap = {rule!r}")
    jobs = {job.slot: job for job in Job.objects.filter(schedule_id=schedule.pk, slot__isnull=False)}
    reasons = {each.slot: each.reason for each in Slot.objects.filter(schedule_id=schedule.pk)}
    for each in SlotRange.objects.filter(schedule_id=schedule.pk):
        reasons[each.first] = reasons[each.last] = each.reason
    slot = first
    while slot <= last:
        job = jobs.get(slot)
        line = bar(job, first) if job else " " * cells(slot, first) + f"x {reasons.get(slot, '?')}"
        timeline.draw(f"slot {cells(slot, first) * CELL:.0f}", line)
        slot += timedelta(seconds=INTERVAL)
    return {
        "succeeded": sum(job.status == "SUCCEEDED" for job in jobs.values()),
        "cancelled": sum(job.status == "CANCELLED" for job in jobs.values()),
        "side by side": most_at_once(list(jobs.values())),
    }


def cells(moment: datetime, first: datetime) -> int:
    return max(round((moment - first).total_seconds() / CELL), 0)


def bar(job: Job, first: datetime) -> str:
    """Dots while it waits, then a line while it runs; `>` at a good end, `|` where it was cancelled."""
    due, ends = job.slot or first, job.finished_at or first
    starts = job.started_at or ends
    waits = cells(starts, first) - cells(due, first)
    runs = cells(ends, first) - cells(starts, first)
    return " " * cells(due, first) + "." * waits + "=" * runs + (">" if job.status == "SUCCEEDED" else "|")


def most_at_once(jobs: list[Job]) -> int:
    ran = [(job.started_at, job.finished_at) for job in jobs if job.started_at and job.finished_at]
    return max((sum(began <= moment < ended for began, ended in ran) for moment, _ in ran), default=0)


def judge(timeline: Timeline, counts: dict[str, dict[str, int]]) -> None:
    """Say and check what is to be seen."""
    timeline.scene("What is to be seen")
    for rule, count in counts.items():
        timeline.conclude(f"{rule:<8}" + ", ".join(f"{name}: {number}" for name, number in count.items()))
    expect(counts["allow"]["side by side"] >= 2, "allow lets jobs run side by side")
    expect(counts["allow"]["succeeded"] == SLOTS, "allow runs every slot")
    for rule in ("skip", "queue", "replace"):
        expect(counts[rule]["side by side"] == 1, f"{rule} lets one run at a time")
    expect(counts["skip"]["succeeded"] < SLOTS, "skip leaves slots out")
    expect(counts["replace"]["cancelled"] >= 2, "replace cancels the older one")


def clean_up() -> None:
    for rule in RULES:
        found = Schedule.objects.filter(name=f"exercise-{rule}")
        ids = list(found.values_list("pk", flat=True))
        Slot.objects.filter(schedule_id__in=ids).delete()
        SlotRange.objects.filter(schedule_id__in=ids).delete()
        found.delete()
    Job.objects.filter(queue_name="exercise").delete()
