"""Jobs that a worker claimed without hearing of it: its connection was cut before the answer came."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import transaction

from django_reliable_jobs.models import Job
from tests import tasks
from tests.actors import somebody_waits_for_a_lock, wait_for
from tests.proxy import Proxy
from tests.workers import WorkerProcess

CLAIM_BY_ID = b"WITH picked AS MATERIALIZED (\n    SELECT job.id FROM"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def test_a_job_that_the_housekeeping_claimed_unheard_is_run(
    proxy: Proxy, start_worker: Callable[..., WorkerProcess]
) -> None:
    job, has_claimed = tasks.effect.enqueue("passed over"), list[bool]()

    def is_commit_of_claim(message: bytes) -> bool:
        has_claimed.extend([True] if CLAIM_BY_ID in message else [])
        return bool(has_claimed) and message[5:].startswith(b"COMMIT")

    cut = proxy.cut_after(is_commit_of_claim)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)  # so that claims pass over it
        start_worker("--threads", "2", environment=proxy.environment)
        wait_for(somebody_waits_for_a_lock, what="the claim that stands in line")
    assert cut.happened.wait(60)
    wait_for(lambda: Job.objects.get(pk=job.pk).has_ended, timeout=25, what="the end of the job")
    assert Job.objects.get(pk=job.pk).status == "SUCCEEDED"
