"""A system as its operators meet it on a morning: work under way, dead letters, a schedule that did not run."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_reliable_jobs.engine import progress, queues, schedules
from django_reliable_jobs.engine.progress import Report
from django_reliable_jobs.models import Alert, Attempt, Job, Leader, MinuteCount, Progress, Schedule, Slot, Worker
from django_reliable_jobs.recurrence import Cron, Every, Recurrence
from django_reliable_jobs.schedule_options import ScheduleOptions

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/billing/tasks.py", line 41, in charge
    answer = gateway.charge(card, amount)
  File "/srv/shop/billing/gateway.py", line 18, in charge
    raise CardDeclined(answer.code)
billing.gateway.CardDeclined: insufficient funds
"""


def a_morning() -> None:
    """Fill the tables."""
    now = timezone.now()
    Schedule.objects.all().delete()
    _schedules(now)
    _fleet(now)
    _work(now)
    _minutes(now)
    queues.pause("default", ["newsletter"])
    Alert.objects.create(
        kind="schedule_silent",
        subject="nightly-invoices",
        severity="critical",
        message="The schedule nightly-invoices has not succeeded for more than 26h: its last success was yesterday.",
        opened_at=now - timedelta(hours=3),
    )
    Alert.objects.create(
        kind="dead_letters",
        subject="billing.charge",
        severity="warning",
        message="3 jobs of the task billing.charge are new dead letters.",
        opened_at=now - timedelta(minutes=40),
    )


def _schedules(now: datetime) -> None:
    night = now.replace(hour=2, minute=30, second=0, microsecond=0)
    night = night if night < now else night - timedelta(days=1)
    nightly = _schedule("nightly-invoices", Cron("30 2 * * *"), night + timedelta(days=1))
    decided = min(now, night + timedelta(hours=5, minutes=12))
    Slot.objects.create(schedule_id=nightly.pk, slot=night, outcome="missed", reason="deadline", decided_at=decided)
    for days in range(1, 8):
        _run(nightly, night - timedelta(days=days), seconds=240 + 20 * days)
    report = _schedule("weekly-report", Cron("0 6 * * 1"), now + timedelta(days=3))
    _run(report, now - timedelta(hours=4), seconds=62, status="DEAD", reason="SMTPServerDisconnected: connection lost")
    rates = _schedule("exchange-rates", Every(minutes=5), now + timedelta(minutes=2))
    for number in range(1, 60):
        slot = now - timedelta(minutes=5 * number)
        if number == 17:
            Slot.objects.create(schedule_id=rates.pk, slot=slot, outcome="skipped", reason="overlap")
        else:
            _run(rates, slot, seconds=2 + math.sin(number) + (9 if number == 16 else 0))
    cleanup = _schedule("clean-up-carts", Cron("15 * * * *"), now + timedelta(minutes=20))
    _run(cleanup, now - timedelta(minutes=40), seconds=12)


def _schedule(name: str, rule: Recurrence, next_run: datetime) -> Schedule:
    made = schedules.create("default", name=name, task="tests.tasks.nothing", options=ScheduleOptions(recurrence=rule))
    Schedule.objects.filter(pk=made.pk).update(next_run_at=next_run, decided_until=next_run - timedelta(seconds=1))
    return made


def _run(schedule: Schedule, slot: datetime, *, seconds: float, status: str = "SUCCEEDED", reason: Any = None) -> None:
    job = Job.objects.create(
        task=schedule.task,
        status=status,
        schedule_id=schedule.pk,
        slot=slot,
        run_after=slot,
        created_at=slot,
        started_at=slot + timedelta(seconds=1),
        first_started_at=slot + timedelta(seconds=1),
        finished_at=slot + timedelta(seconds=1 + seconds),
        claims=1,
        attempt=1,
        max_attempts=1,
        token=1,
        worker_id=1,
        reason=reason,
    )
    Slot.objects.create(schedule_id=schedule.pk, slot=slot, outcome="job", job_id=job.pk, decided_at=slot)


def _fleet(now: datetime) -> None:
    lease = {"expires_at": now + timedelta(days=1), "threads": 8}
    Worker.objects.create(
        id=1, host="worker-a", pid=4711, heartbeat_at=now - timedelta(seconds=3), memory=131_000_000, **lease
    )
    served = {"queues": ["default", "billing"], "memory": 98_000_000}
    Worker.objects.create(id=2, host="worker-b", pid=4712, heartbeat_at=now - timedelta(seconds=6), **served, **lease)
    Leader.objects.create(
        name="scheduler",
        holder=1,
        term=4,
        host="worker-a",
        pid=99,
        elected_at=now - timedelta(hours=31),
        expires_at=now + timedelta(days=1),
    )


def _work(now: datetime) -> None:
    long = _job("shop.import_catalogue", "RUNNING", now - timedelta(minutes=12), worker_id=1, kwargs={"supplier": 7})
    told = Report(
        token=long.token or 0,
        job_id=long.pk,
        run=1,
        claim=1,
        done=4520,
        total=10_000,
        skipped=3,
        rate=12.4,
        message="images of the second supplier",
    )
    progress.write("default", [told])
    Progress.objects.update(told_at=now)
    _job("billing.charge", "RUNNING", now - timedelta(seconds=2), worker_id=2, queue_name="billing")
    for number in range(4):
        _job("mail.send", "READY", now - timedelta(seconds=9 - number), queue_name="mail")
    for number in range(12):
        _job("news.send", "READY", now - timedelta(hours=2, seconds=number), queue_name="newsletter")
    for number in range(3):
        _dead("billing.charge", now - timedelta(hours=number), "billing.gateway.CardDeclined", "insufficient funds")
    _dead("mail.send", now - timedelta(hours=9), "smtplib.SMTPRecipientsRefused", "user unknown")
    _job("mail.remind", "SCHEDULED", now, run_after=now + timedelta(days=2), queue_name="mail")


def _job(task: str, status: str, moment: datetime, **given: Any) -> Job:
    runs = {
        "token": int(moment.timestamp()),
        "started_at": moment,
        "first_started_at": moment,
        "claims": 1,
        "attempt": 1,
    }
    row = {"created_at": moment, "run_after": moment, **(runs if status in ("RUNNING", "DEAD") else {}), **given}
    return Job.objects.create(task=task, status=status, **{"max_attempts": 5, **row})


def _dead(task: str, moment: datetime, error_class: str, message: str) -> Job:
    job = _job(
        *(task, "DEAD", moment),
        finished_at=moment,
        reason=f"{error_class.rpartition('.')[2]}: {message}",
        kwargs={"order_id": 1042},
        attempt=2,
        claims=2,
        max_attempts=2,
        worker_id=1,
    )
    for claim in (1, 2):
        begin = moment - timedelta(minutes=2 - claim)
        Attempt.objects.create(
            job=job,
            number=claim,
            claim=claim,
            outcome="failed",
            started_at=begin,
            finished_at=begin + timedelta(seconds=1.2),
            worker="worker-a:4711",
            error_class=error_class,
            error_message=message,
            traceback=TRACEBACK,
        )
    return job


def _minutes(now: datetime) -> None:
    first = now.replace(second=0, microsecond=0)
    rows = []
    for back in range(180):
        well = int(60 + 40 * math.sin(back / 17) + (back * 7919) % 23)
        badly = 14 if 60 < back < 66 else (1 if back % 37 == 0 else 0)
        for outcome, count in (("succeeded", well), ("failed", badly)):
            if count:
                rows.append(
                    MinuteCount(
                        minute=first - timedelta(minutes=back),
                        queue_name="default",
                        task="shop.x",
                        outcome=outcome,
                        count=count,
                        seconds=1.0,
                    )
                )
    MinuteCount.objects.bulk_create(rows)
