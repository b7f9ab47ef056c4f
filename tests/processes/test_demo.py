"""`manage.py demo`, as somebody new runs it: real orders, a real worker, and what it says of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from django_reliable_jobs.models import Attempt, Job, Worker
from testproject.shop.models import Invoice, Order
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def test_it_shows_what_ran_what_was_retried_and_what_died_as_often_as_it_is_run(start_worker: StartWorker) -> None:
    for run in (1, 2):
        demo = start_worker(command="demo", ready=False)
        assert demo.wait() == 0, demo.output
        assert Counter(Job.objects.values_list("status", flat=True)) == {"SUCCEEDED": 10 * run, "DEAD": run}
        assert not Worker.objects.exists(), "its worker has signed off"
    assert Order.objects.count() == Invoice.objects.count() == 8, "the order that was rolled back is none of them"
    output = demo.output
    gone = re.search(r"order \d+ is gone, and so is its job (\d+)", output)
    assert gone
    assert not Job.objects.filter(pk=gone[1]).exists()
    dead = Job.objects.filter(status="DEAD").latest("pk")
    assert re.search(rf"{dead.pk}\s+fax_to_warehouse\s+DEAD\s+{dead.attempt}\s+\d+ ms", output)
    failed = Attempt.objects.filter(job__pk__gt=dead.pk - 11)
    assert failed.count() > dead.attempt, "another job was retried too, and succeeded"
    assert output.count(" failed after ") == failed.count(), output
    assert f"manage.py jobs retry {dead.pk}" in output
    assert "/admin/django_reliable_jobs/" in output


def test_a_database_that_does_not_answer_is_named_with_the_way_out(start_worker: StartWorker) -> None:
    elsewhere = {"DJANGO_SETTINGS_MODULE": "testproject.settings", "DATABASE_URL": "postgresql://127.0.0.1:1/nowhere"}
    demo = start_worker(command="demo", ready=False, environment=elsewhere)
    assert demo.wait() == 1
    assert "1. Migrate the database 'nowhere' of DATABASE_URL" in demo.output
    assert "port 1 failed: Connection refused" in demo.output
    assert "Without DATABASE_URL, the demo starts a PostgreSQL of its own." in demo.output
    assert "Traceback" not in demo.output
