"""Steps as people see them: `jobs show`, `jobs emit`, the page of a job in the admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_reliable_jobs import Fail, emit_event, sleep, step, wait_for_event
from django_reliable_jobs.engine import revival
from django_reliable_jobs.models import Alert, Event, Job
from django_reliable_jobs.testing import at
from tests import orders, step_tasks
from tests.edges.jobs_command import failing, jobs, jobs_json
from tests.models import Effect
from tests.recorded import run_jobs
from tests.step_tasks import IN_A_MINUTE, fails, fails_until, leaves

pytestmark = pytest.mark.django_db


def flow() -> Any:
    step("charge", leaves, "charge", {"id": 7})
    step("flaky", fails_until, "flaky", 2)
    sleep("cool-down", timedelta(hours=1))
    wait_for_event("shipped:7", timeout=timedelta(days=7))
    return step("mail", fails, "mail", "no such <address>", max_attempts=2)


def a_job() -> Job:
    step_tasks.flow = flow
    job = step_tasks.follows.enqueue()
    run_jobs()
    return job


def page_of(client: Client, job: Job) -> str:
    return client.get(f"/admin/django_reliable_jobs/job/{job.pk}/change/").content.decode()


class TestShow:
    def test_steps_are_listed_with_what_came_of_them(self) -> None:
        job = a_job()
        text = jobs("show", job.pk)
        lines = text[text.index("Steps\n") :].splitlines()
        assert lines[1].startswith("   1  done     charge, took ")
        assert lines[1].endswith('-> {"id": 7}')
        assert "flaky, 2 tries, took" in lines[2]
        assert "3  waiting  sleep cool-down, since " in lines[3]
        assert "until " in lines[3]

    def test_it_tells_what_is_waited_for_and_since_when(self) -> None:
        job = a_job()
        with at(timezone.now() + timedelta(hours=2)):
            run_jobs()
            text = jobs("show", job.pk)
        assert "done     sleep cool-down, took 1 h" in text
        assert "waiting  wait for the event shipped:7, since" in text
        assert "(in 7 d)" in text

    def test_a_failure_is_shown_below_its_step(self) -> None:
        emit_event("shipped:7", "1Z")
        job = a_job()
        with at(timezone.now() + timedelta(hours=2)):
            run_jobs()
        text = jobs("show", job.pk)
        assert "failed   mail, 2 tries" in text
        assert "ValueError: no such <address>" in text
        assert "DEAD" in text

    def test_scripts_read_them_as_json(self) -> None:
        steps = jobs_json("show", a_job().pk)["steps"]
        assert [(each["name"], each["kind"], each["state"]) for each in steps] == [
            ("charge", "step", "done"),
            ("flaky", "step", "done"),
            ("cool-down", "sleep", "waiting"),
        ]
        assert steps[0]["result"] == {"id": 7}
        assert steps[0]["took"] >= 0
        assert steps[2]["took"] is None

    def test_a_job_without_steps_shows_none(self) -> None:
        step_tasks.flow = lambda: None
        job = step_tasks.follows.enqueue()
        run_jobs()
        assert "Steps" not in jobs("show", job.pk)

    def test_why_a_step_is_put_off_is_told(self) -> None:
        step_tasks.flow = lambda: step("flaky", fails_until, "flaky", 3, backoff=IN_A_MINUTE)
        job = step_tasks.follows.enqueue()
        run_jobs()
        assert "the step 'flaky' failed, try 1 of 3: ConnectionError" in jobs("show", job.pk)


class TestEmit:
    def test_an_event_is_emitted_with_its_payload(self) -> None:
        job = step_tasks.waits.enqueue("paid")
        run_jobs()
        assert "Emitted paid" in jobs("emit", "paid", '{"sum": 5}')
        run_jobs()
        assert Job.objects.get(pk=job.pk).result == {"sum": 5}

    def test_without_a_payload_it_is_null(self) -> None:
        jobs("emit", "paid")
        assert Event.objects.get().payload is None

    def test_a_second_one_fails_and_changes_nothing(self) -> None:
        jobs("emit", "paid", "1")
        _, problem = failing("emit", "paid", "2")
        assert "was emitted before, and stays as it was" in problem
        assert Event.objects.get().payload == 1

    @pytest.mark.parametrize(("payload", "told"), [("text", "is no JSON"), ('"\\u0000"', "U\\+0000")])
    def test_what_is_no_payload_is_refused(self, payload: str, told: str) -> None:
        from django.core.management import CommandError

        with pytest.raises(CommandError, match=told):
            jobs("emit", "paid", payload)


class TestRetry:
    def test_a_step_that_failed_for_good_is_tried_anew_and_the_others_are_kept(self) -> None:
        def broken_until_mended() -> Any:
            step("charge", leaves, "charge")
            return step("mail", fails_until, "mail", 3, max_attempts=2)

        step_tasks.flow = broken_until_mended
        job = step_tasks.follows.enqueue()
        run_jobs()
        assert Job.objects.get(pk=job.pk).status == "DEAD"
        assert revival.revive("default", [job.pk]).revived == [job.pk]
        run_jobs()
        assert Job.objects.get(pk=job.pk).result == "mail"
        text = jobs("show", job.pk)
        assert text.count("charge") == 1

    def test_from_the_start_no_step_is_kept(self) -> None:
        job = a_job()
        Job.objects.filter(pk=job.pk).update(status="DEAD", finished_at=timezone.now())
        revival.revive("default", [job.pk], from_start=True)
        run_jobs()
        text = jobs("show", job.pk)
        assert "Steps of run 2" in text
        assert [each["name"] for each in jobs_json("show", job.pk)["steps"]] == ["charge", "flaky", "cool-down"]


class TestUndo:
    def test_what_is_undone_is_shown(self) -> None:
        job = step_tasks.makes_three.enqueue()
        run_jobs()
        text = jobs("show", job.pk)
        assert "compensation  done" in text
        assert text.count("undo: done") == 3

    def test_of_a_step_that_failed_nothing_is_to_be_undone(self, admin_client: Client) -> None:
        def flow() -> None:
            step("make a", step_tasks.make, "a", undo=step_tasks.unmake)
            step("make b", step_tasks.fails, "b", undo=step_tasks.unmake, max_attempts=1)

        step_tasks.flow = flow
        job = step_tasks.follows.enqueue()
        run_jobs()
        text = jobs("show", job.pk)
        assert (text.count("undo: done"), text.count("undo:")) == (1, 1)
        assert "can be undone" not in page_of(admin_client, job)

    def test_what_could_not_be_undone_is_shown_and_told_of_and_retried_by_hand(self) -> None:
        job = a_job_that_can_not_be_undone()
        text = jobs("show", job.pk)
        assert "undo: failed, 5 tries: ValueError: b can't be unmade" in text
        assert "undo: to do" in text
        alert = Alert.objects.get(kind="undo_failed")
        assert f"jobs retry --undo {job.pk}" in alert.message
        Effect.objects.create(name="mended")
        assert f"They go on undoing: {job.pk}" in jobs("retry", "--undo", job.pk)
        run_jobs()
        assert Job.objects.get(pk=job.pk).compensation == "done"

    def test_where_nothing_is_left_to_undo_a_retry_of_it_fails(self) -> None:
        job = step_tasks.makes_three.enqueue()
        run_jobs()
        _, problem = failing("retry", "--undo", job.pk)
        assert f"Nothing that could not be undone in: {job.pk}" in problem


def a_job_that_can_not_be_undone() -> Job:
    def breaks() -> None:
        step("make a", step_tasks.make, "a", undo=step_tasks.unmake)
        step("make b", step_tasks.make, "b", undo=step_tasks.unmake_while_it_is_broken)
        raise Fail("the end")

    step_tasks.flow = breaks
    job = step_tasks.follows.enqueue()
    run_jobs()
    return job


class TestFamily:
    def test_children_are_counted_and_name_their_parent(self) -> None:
        job = step_tasks.has_children.enqueue(["a", "b"])
        run_jobs()
        assert "Children: 2 SUCCEEDED" in jobs("show", job.pk)
        child = Job.objects.filter(parent_id=job.pk).first()
        assert child is not None
        assert f"Child of job {job.pk}" in jobs("show", child.pk)
        assert jobs_json("show", job.pk)["children"] == {"SUCCEEDED": 2}

    def test_a_cancel_reaches_children_if_asked(self) -> None:
        job = step_tasks.has_one_child.enqueue("waits")
        run_jobs()
        jobs("cancel", "--children", job.pk)
        assert set(Job.objects.values_list("status", flat=True)) == {"CANCELLED"}


class TestAdmin:
    def test_the_page_of_a_job_lists_its_steps(self, admin_client: Client) -> None:
        text = page_of(admin_client, a_job())
        assert "Steps, sleeps and waits of this run" in text
        for shown in ("charge", "flaky", "cool-down", "waiting", "{&quot;id&quot;: 7}"):
            assert shown in text

    def test_a_job_without_steps_has_no_such_table(self, admin_client: Client) -> None:
        step_tasks.flow = lambda: None
        job = step_tasks.follows.enqueue()
        run_jobs()
        assert "Steps, sleeps and waits" not in page_of(admin_client, job)

    def test_the_queries_of_the_page_do_not_grow_with_its_steps(self, admin_client: Client) -> None:
        def many() -> None:
            for _ in range(30):
                step("one", leaves, "one")

        few = a_job()
        step_tasks.flow = many
        job = step_tasks.follows.enqueue()
        run_jobs()
        page_of(admin_client, few)
        with CaptureQueriesContext(
            connection,
        ) as first:
            page_of(admin_client, few)
        with CaptureQueriesContext(connection) as second:
            page_of(admin_client, job)
        assert len(first) == len(second)


class TestShop:
    def test_the_webhook_sends_an_order_on_its_way(self) -> None:
        from testproject.shop.tasks import fulfil_order

        order = orders.place_order()
        job = fulfil_order.enqueue(order.pk)
        run_jobs()
        assert Job.objects.get(pk=job.pk).status == "WAITING"
        orders.ship(order)
        run_jobs()
        assert Job.objects.get(pk=job.pk).result == f"1Z{order.pk}"
        assert orders.money_of(order) == (1, 0)
        assert orders.trackings_of(order) == [f"1Z{order.pk}"]

    def test_a_provider_that_hangs_up_is_asked_again_with_the_same_key(self) -> None:
        from testproject.shop.models import Payment
        from testproject.shop.tasks import fulfil_order

        order = orders.place_order(card="hangs up")
        job = fulfil_order.enqueue(order.pk)
        for minutes in range(4):
            with at(timezone.now() + timedelta(minutes=minutes)):
                run_jobs()
        assert Job.objects.get(pk=job.pk).status == "WAITING"
        assert Payment.objects.get(order_id=order.pk).requests == 3
        assert orders.money_of(order) == (1, 0)
