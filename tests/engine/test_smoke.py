from __future__ import annotations
import pytest
from django_reliable_jobs.models import Job
from django_reliable_jobs.testing import run_jobs
from tests import tasks
from tests.models import Effect

@pytest.mark.django_db
def test_it_runs_in_a_test_case() -> None:
    tasks.effect.enqueue("a"); tasks.fails.enqueue()
    jobs = run_jobs()
    assert [j.status for j in jobs] == ["SUCCEEDED", "SCHEDULED"]
    assert Effect.objects.get().name == "a"

def test_worker(start_worker) -> None:
    tasks.effect.enqueue_many([{"name": str(i)} for i in range(100)])
    w = start_worker("--burst")
    assert w.wait() == 0, w.output
    assert Effect.objects.count() == 100
    assert Job.objects.filter(status="SUCCEEDED").count() == 100
