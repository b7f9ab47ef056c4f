"""How far a job is, as `jobs show` and `jobs watch` tell it."""

from __future__ import annotations

import io
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from django_reliable_jobs.engine import progress
from django_reliable_jobs.engine.claim import ClaimedJob
from django_reliable_jobs.engine.progress import Report
from django_reliable_jobs.models import Job, Progress
from tests import batch_tasks, tasks
from tests.actors import wait_for
from tests.claims import SUCCESS, claim_one_as, end
from tests.edges.jobs_command import Terminal, failing, jobs, jobs_json
from tests.items import some_items
from tests.recorded import run_jobs

pytestmark = pytest.mark.django_db


def a_job_that_told(**told: Any) -> ClaimedJob:
    tasks.nothing.enqueue()
    job = claim_one_as(1)
    given = {"done": 4520, "total": 10_000, "skipped": 3, "rate": 1234.4, "message": "re-prices", **told}
    progress.write("default", [Report(token=job.token, job_id=job.id, run=1, claim=1, **given)])
    return job


class TestShow:
    def test_it_draws_how_far_a_running_job_is(self) -> None:
        job = a_job_that_told()
        text = jobs("show", job.id)
        assert "Progress\n  [##########--------------]  45.2 %  4,520 of 10,000 done, 3 skipped\n" in text
        assert "\n  1,234 per second, about 4 s left\n" in text
        assert "\n  re-prices\n" in text

    def test_it_says_how_long_ago_the_job_told(self) -> None:
        job = a_job_that_told(message="")
        Progress.objects.update(told_at=timezone.now() - timedelta(minutes=5))
        assert "3 skipped\n  silent for 5 min\n" in jobs("show", job.id)

    def test_nearly_all_is_not_all(self) -> None:
        assert "[#######################-]  99.9 %" in jobs("show", a_job_that_told(done=9999).id)
        assert "[########################] 100.0 %" in jobs("show", a_job_that_told(done=10_000).id)

    @pytest.mark.parametrize("total", [None, 0])
    def test_without_a_total_there_is_no_bar(self, total: int | None) -> None:
        text = jobs("show", a_job_that_told(total=total, skipped=0).id)
        assert "Progress\n  4,520" in text
        assert "%" not in text and "left" not in text

    def test_what_stays_with_the_job_that_ended_is_shown_without_a_speed(self) -> None:
        job = a_job_that_told()
        assert end(job, SUCCESS)
        text = jobs("show", job.id)
        assert "45.2 %  4,520 of 10,000 done" in text
        assert "per second" not in text

    def test_a_job_that_tells_nothing_has_no_progress(self) -> None:
        assert "Progress" not in jobs("show", tasks.nothing.enqueue().pk)

    def test_it_shows_batches_the_last_checkpoint_and_what_was_skipped(self) -> None:
        items = some_items(30)
        job = batch_tasks.skip_odd.enqueue()
        run_jobs()
        text = jobs("show", job.pk)
        assert "[########################] 100.0 %  30 of 30 done, 15 skipped\n" in text
        assert " ago: batches:tests.Item\n" in text
        assert f"  batches of tests.Item: 30 done, 15 skipped, up to [{items[-1].pk}]\n" in text
        assert f"    skipped Item {items[0].pk}: ValueError: place 1\n" in text
        assert "    and 5 more; --json has the first 15\n" in text

    def test_a_script_reads_it_as_json(self) -> None:
        items = some_items(4)
        job = batch_tasks.skip_odd.enqueue()
        run_jobs()
        shown = jobs_json("show", job.pk)
        assert (shown["progress"]["done"], shown["progress"]["total"], shown["progress"]["skipped"]) == (4, 4, 2)
        [loop] = shown["batches"]
        assert (loop["name"], loop["done"], loop["after"]) == ("tests.Item", 4, [items[-1].pk])
        assert [each["error"] for each in loop["faults"]] == ["ValueError: place 1", "ValueError: place 3"]
        assert shown["last_checkpoint"] == "batches:tests.Item"

    def test_it_shows_how_far_each_failed_attempt_came(self) -> None:
        job = batch_tasks.tell_and_fail.enqueue(10)
        run_jobs()
        text = jobs("show", job.pk)
        for number, done in ((1, 10), (2, 20), (3, 30)):
            [line] = [line for line in text.splitlines() if line.startswith(f"  {number}  failed after")]
            assert line.endswith(f": {done} of 100 done")

    def test_a_terminal_is_shown_escape_sequences_and_does_not_obey_them(self) -> None:
        job = a_job_that_told(message="\x1b[2J")
        assert "\x1b" not in jobs("show", job.id)


class TestWatch:
    def test_of_a_job_that_has_ended_it_shows_the_end(self) -> None:
        job = batch_tasks.tell.enqueue(5, 10)
        run_jobs()
        assert jobs("watch", job.pk) == (
            f"job {job.pk}  SUCCEEDED  [############------------]  50.0 %  5 of 10 done\n"
        )  # fmt: skip

    def test_it_fails_when_the_job_did_not_succeed(self) -> None:
        job = batch_tasks.tell_and_fail.enqueue(10)
        run_jobs()
        printed, failure = failing("watch", job.pk)
        assert "30 of 100 done" in printed
        assert failure == f"Job {job.pk} ended DEAD: ValueError: it broke"

    def test_a_script_reads_the_end_as_json(self) -> None:
        job = batch_tasks.tell.enqueue(5, 10)
        run_jobs()
        ended = jobs_json("watch", job.pk)
        assert (ended["status"], ended["progress"]["done"]) == ("SUCCEEDED", 5)

    def test_a_job_that_is_not_there_is_said_to_be_pruned(self) -> None:
        with pytest.raises(CommandError, match="it may have been pruned"):
            jobs("watch", 10**9)

    @pytest.mark.parametrize("every", ["0", "-1", "x", "nan"])
    def test_it_looks_every_so_many_seconds(self, every: str) -> None:
        with pytest.raises(CommandError, match="is not a number of seconds"):
            jobs("watch", 1, "--every", every)

    def test_ctrl_c_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        job = a_job_that_told()
        monkeypatch.setattr("django_reliable_jobs.management.jobs.progress.time.sleep", interrupt)
        line = jobs("watch", job.id)
        assert "RUNNING    [##########--------------]  45.2 %" in line
        assert "1,234 per second, about 4 s left  re-prices\n" in line

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("stdout", [io.StringIO, Terminal])
    def test_it_shows_each_change_until_the_end(self, stdout: type[io.StringIO]) -> None:
        job = a_job_that_told()
        out = stdout()
        watcher = threading.Thread(target=_watch, args=(job.id, out), daemon=True)
        watcher.start()
        wait_for(lambda: "45.2 %" in out.getvalue(), what="the first line")
        Progress.objects.update(done=9000)
        wait_for(lambda: "90.0 %" in out.getvalue(), what="the second line")
        assert end(job, SUCCESS)
        watcher.join(timeout=60)
        lines = [line for line in out.getvalue().replace("\r\x1b[K", "\n").splitlines() if line]
        assert [line.split()[2] for line in lines] == ["RUNNING", "RUNNING", "SUCCEEDED"]
        assert out.getvalue().endswith("\n")
        assert Job.objects.get(pk=job.id).has_ended


def _watch(job_id: int, out: io.StringIO) -> None:
    try:
        call_command("jobs", "watch", str(job_id), "--every", "0.02", stdout=out, no_color=True)
    finally:
        connection.close()
