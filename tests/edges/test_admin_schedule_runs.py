"""The runs of a schedule: a bar for each, what did not run and why, figures, and the same as CSV."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from django_reliable_jobs.admin import schedule_runs as runs_admin
from django_reliable_jobs.engine import schedule_runs
from django_reliable_jobs.models import Job, Schedule, Slot, SlotRange
from tests.schedules import a_schedule, on

pytestmark = pytest.mark.django_db


@pytest.fixture
def schedule() -> Schedule:
    Schedule.objects.all().delete()
    return a_schedule()


def pages(schedule: Schedule) -> str:
    return f"/admin/django_reliable_jobs/schedule/{schedule.pk}/runs"


def a_run(schedule: Schedule, slot: datetime, *, seconds: float = 10, status: str = "SUCCEEDED", **row: Any) -> Job:
    start = slot + timedelta(seconds=2)
    job = Job.objects.create(
        task="x", status=status, started_at=start, finished_at=start + timedelta(seconds=seconds), slot=slot, **row
    )
    Slot.objects.create(schedule_id=schedule.pk, slot=slot, outcome="job", job_id=job.pk)
    return job


def a_gap(schedule: Schedule, slot: datetime, outcome: str = "missed", reason: str = "deadline") -> None:
    Slot.objects.create(schedule_id=schedule.pk, slot=slot, outcome=outcome, reason=reason)


class TestFigures:
    def test_success_rate_and_percentiles_are_of_what_ended(self, schedule: Schedule) -> None:
        for hour, seconds in enumerate([1, 2, 3, 4, 100]):
            a_run(schedule, on(2, hour), seconds=seconds)
        a_run(schedule, on(2, 5), seconds=999, status="DEAD")
        a_gap(schedule, on(2, 6))
        found = schedule_runs.summary(schedule_runs.runs("default", schedule.pk, limit=100))
        assert (found.ended, found.succeeded, found.without_job) == (6, 5, 1)
        assert [each and each.total_seconds() for each in (found.median, found.ninety_fifth, found.longest)] == [
            3,
            100,
            100,
        ]

    def test_of_nothing_there_are_none(self, schedule: Schedule) -> None:
        found = schedule_runs.summary([])
        assert (found.ended, found.median, found.longest) == (0, None, None)

    def test_they_come_newest_first_with_ranges_in_their_place(self, schedule: Schedule) -> None:
        for hour in (1, 9):
            a_run(schedule, on(2, hour))
        SlotRange.objects.create(
            schedule_id=schedule.pk, first=on(2, 2), last=on(2, 8), count=7, outcome="missed", reason="misfire"
        )
        found = schedule_runs.runs("default", schedule.pk, limit=100)
        assert [(run.last, run.slots) for run in found] == [(on(2, 9), 1), (on(2, 8), 7), (on(2, 1), 1)]
        assert len(schedule_runs.runs("default", schedule.pk, limit=2)) == 2


class TestPage:
    def test_it_draws_and_lists_each_run_and_each_gap(self, admin_client: Client, schedule: Schedule) -> None:
        well, dead = a_run(schedule, on(2, 1)), a_run(schedule, on(2, 2), status="DEAD", reason="no dial tone")
        a_gap(schedule, on(2, 3))
        a_gap(schedule, on(2, 4), "skipped", "overlap")
        page = admin_client.get(f"{pages(schedule)}/").content.decode()
        assert [page.count(f'class="reliable-run-{kind}"') for kind in ("well", "badly", "absent")] == [1, 1, 2]
        text = re.sub(r"\s+", " ", strip_tags(page))
        for told in (
            "50.0 %",
            "decided after its start deadline",
            "an earlier job had not ended",
            "no dial tone",
            "10 s",
        ):
            assert told in text
        assert f"#{well.pk}" in text and f"/job/{dead.pk}/change/" in page

    def test_a_run_whose_job_is_deleted_is_still_one(self, admin_client: Client, schedule: Schedule) -> None:
        job = a_run(schedule, on(2, 1))
        Job.objects.all().delete()
        assert f"job {job.pk}, deleted since" in strip_tags(admin_client.get(f"{pages(schedule)}/").content.decode())

    def test_one_that_has_not_run_says_so(self, admin_client: Client, schedule: Schedule) -> None:
        assert "It has not run yet." in admin_client.get(f"{pages(schedule)}/").content.decode()

    def test_its_page_leads_there(self, admin_client: Client, schedule: Schedule) -> None:
        address = f"/admin/django_reliable_jobs/schedule/{schedule.pk}/change/"
        assert f"{pages(schedule)}/" in admin_client.get(address).content.decode()

    def test_it_takes_as_many_statements_for_many_runs_as_for_none(
        self, admin_client: Client, schedule: Schedule
    ) -> None:
        numbers = []
        for day in (2, 3):
            with CaptureQueriesContext(connection) as captured:
                admin_client.get(f"{pages(schedule)}/")
            numbers.append(len(captured))
            for hour in range(20):
                a_run(schedule, on(day, hour))
        assert numbers[0] == numbers[1] == 4  # session, user, schedule, runs

    def test_who_may_not_view_schedules_sees_nothing(self, client: Client, schedule: Schedule) -> None:
        user = User.objects.create_user("ada", is_staff=True)
        client.force_login(user)
        for address in (f"{pages(schedule)}/", f"{pages(schedule)}.csv"):
            assert client.get(address).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="view_schedule"))
        assert client.get(f"{pages(schedule)}/").status_code == 200
        assert client.get(f"{pages(schedule)[:-5]}9/runs/").status_code == 404

    def test_it_obeys_no_markup(self, admin_client: Client, schedule: Schedule) -> None:
        a_run(schedule, on(2, 1), status="DEAD", reason="<script>alert(1)</script>")
        page = admin_client.get(f"{pages(schedule)}/").content.decode()
        assert "<script>alert" not in page and "&lt;script&gt;" in page


class TestExport:
    def rows(self, client: Client, schedule: Schedule) -> list[dict[str, str]]:
        response = client.get(f"{pages(schedule)}.csv")
        assert response["Content-Type"] == "text/csv; charset=utf-8"
        assert "attachment" in response["Content-Disposition"]
        return list(csv.DictReader(io.StringIO(response.content.decode())))

    def test_each_slot_is_a_line(self, admin_client: Client, schedule: Schedule) -> None:
        job = a_run(schedule, on(2, 1), seconds=2.5)
        a_gap(schedule, on(2, 2))
        gap, run = self.rows(admin_client, schedule)
        assert (gap["slot"], gap["outcome"], gap["reason"], gap["job"]) == (
            on(2, 2).isoformat(),
            "missed",
            "deadline",
            "",
        )
        assert (run["job"], run["status"], run["seconds"]) == (str(job.pk), "SUCCEEDED", "2.5")
        assert run["started"] == (on(2, 1) + timedelta(seconds=2)).isoformat()

    def test_there_are_more_than_on_the_page(
        self, admin_client: Client, schedule: Schedule, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs_admin, "LISTED", 2)
        for hour in range(3):
            a_run(schedule, on(2, hour))
        assert "Older ones are in the CSV." in admin_client.get(f"{pages(schedule)}/").content.decode()
        assert len(self.rows(admin_client, schedule)) == 3

    @pytest.mark.parametrize("reason", ["=1+1", "+1", "-1", "@x"])
    def test_no_spreadsheet_takes_a_value_for_a_formula(
        self, admin_client: Client, schedule: Schedule, reason: str
    ) -> None:
        a_run(schedule, on(2, 1), status="DEAD", reason=reason)
        [row] = self.rows(admin_client, schedule)
        assert row["said"] == f"'{reason}"
