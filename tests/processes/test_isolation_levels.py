"""A fleet on a server, or under a role, that makes every transaction SERIALIZABLE unless it says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_reliable_jobs.models import Job
from tests import interrupted_tasks, tasks
from tests.actors import wait_for
from tests.models import Effect
from tests.workers import WorkerProcess


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_fleet_meets_no_serialization_failure_of_its_own_and_does_each_job_once(
    start_worker: Callable[..., WorkerProcess], level: str
) -> None:
    names = [str(number) for number in range(100)]
    tasks.nothing.enqueue_many([{}] * 2000)
    tasks.fails_until.using(priority=1).enqueue_many([{"attempt": 2}] * 50)
    interrupted_tasks.in_parts.using(priority=1).enqueue_many([{"name": f"parts {name}"} for name in names])
    interrupted_tasks.atomic_effect.using(priority=1).enqueue_many([{"name": f"atomic {name}"} for name in names])
    escaped = level.replace(" ", r"\ ")
    environment = {"PGOPTIONS": f"-c default_transaction_isolation={escaped}"}
    fleet = [start_worker("--threads", "4", environment=environment, ready=False) for _ in range(3)]
    wait_for(lambda: Job.objects.count() == Job.objects.filter(status="SUCCEEDED").count(), what="all", timeout=120)
    for worker in fleet:
        assert "could not serialize" not in _of_the_engine(worker.output), worker.output
        assert "did not answer" not in worker.output
    done = Counter(Effect.objects.exclude(name="tried").values_list("name", flat=True))
    assert set(done.values()) == {1} and len(done) == 400, "each effect is there once"
    assert not Job.objects.filter(losses__gt=0).exists()


def _of_the_engine(output: str) -> str:
    """Leave out attempts: a task's own transaction has the level of the project, and may have to try again."""
    return "\n".join(line for line in output.splitlines() if "attempt" not in line)
