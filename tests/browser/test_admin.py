"""What operators do, in a real browser: pages that show themselves anew, questions, dark mode, a telephone.

With RELIABLE_SCREENSHOTS in the environment, the pictures in docs/images are made anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from django_reliable_jobs.engine import lifecycle, progress
from django_reliable_jobs.engine.progress import Report
from django_reliable_jobs.models import CancelRequest, Job, Progress, Queue, Schedule
from tests.browser.scene import a_morning

OpenPage = Callable[..., Any]

ADMIN = "/admin/django_reliable_jobs/"
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def picture(page: Any, name: str, *, height: int | None = None) -> None:
    """Keep a picture for the docs, if asked for."""
    if "RELIABLE_SCREENSHOTS" in os.environ:
        size = page.viewport_size
        box = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"]}
        page.screenshot(path=str(IMAGES / f"{name}.png"), clip=box, full_page=True, scale="css")


def overflows(page: Any) -> bool:
    """Whether the page as a whole must be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def brightness(page: Any, selector: str, of: str) -> float:
    """How light a colour of an element is, from 0 to 255."""
    colour = page.eval_on_selector(selector, f"each => getComputedStyle(each).{of}")
    return sum(float(each) for each in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 3


def test_the_overview_tells_which_schedule_did_not_run_and_why(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(ADMIN)
    first = page.locator("section[aria-labelledby=reliable-schedules] tbody tr").first
    assert "nightly-invoices" in first.inner_text()
    assert "did not run" in first.inner_text()
    assert "decided after its start deadline" in first.inner_text()
    picture(page, "overview", height=1040)


def test_it_shows_what_is_new_and_stops_when_told(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(ADMIN)
    Queue.objects.create(name="brand-new", paused_at=timezone.now())
    page.get_by_text("brand-new").wait_for()
    page.get_by_role("button", name="Pause updates").click()
    assert page.get_by_role("button", name="Resume updates").get_attribute("aria-pressed") == "true"
    Queue.objects.filter(name="brand-new").delete()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.clock.run_for(60_000)
    assert asked == []
    page.get_by_role("button", name="Resume updates").click()
    page.get_by_text("brand-new").wait_for(state="detached")


def test_dark_mode_is_dark_and_can_be_read(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(ADMIN, color_scheme="dark")
    assert brightness(page, "body", "backgroundColor") < 60
    for mark in (".reliable-mark-badly", ".reliable-mark-well", ".reliable-mark-paused"):
        assert brightness(page, mark, "color") > 120
    assert brightness(page, "rect.reliable-well", "fill") > 120
    picture(page, "overview-dark", height=1040)


def test_a_telephone_needs_no_scrolling_sideways(open_page: OpenPage) -> None:
    a_morning()
    job, schedule = Job.objects.filter(status="DEAD").first(), Schedule.objects.get(name="nightly-invoices")
    assert job is not None
    page = open_page(ADMIN)
    page.set_viewport_size({"width": 390, "height": 844})
    assert not overflows(page)
    picture(page, "overview-phone", height=1180)
    for path in (f"job/{job.pk}/change/", "job/", "job/dead/", f"schedule/{schedule.pk}/runs/"):
        page.goto(page.url.partition("/admin/")[0] + ADMIN + path)
        assert not overflows(page), path


def test_progress_moves_and_the_page_rests_when_the_job_has_ended(open_page: OpenPage) -> None:
    a_morning()
    job = Job.objects.get(task="shop.import_catalogue")
    page = open_page(f"{ADMIN}job/{job.pk}/change/")
    assert page.locator("progress").get_attribute("value") == "4520"
    picture(page, "job-running")
    report = {"token": job.token, "job_id": job.pk, "run": 1, "claim": 1, "total": 10_000, "skipped": 3}
    progress.write("default", [Report(**report, done=9000, rate=10.0, message="")])  # type: ignore[arg-type]
    page.locator("progress[value='9000']").wait_for()
    Progress.objects.all().delete()
    Job.objects.filter(pk=job.pk).update(status="SUCCEEDED", finished_at=timezone.now())
    page.locator(".reliable-head .reliable-mark-well").wait_for()


def test_a_group_of_dead_letters_is_tried_again(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(f"{ADMIN}job/dead/")
    picture(page, "dead-letters", height=480)
    row = page.locator("tr", has_text="billing.charge")
    row.get_by_role("button", name="Retry").click()
    page.get_by_label("Spread over").fill("10m")  # this waits for the next page; a look at the text would not
    assert "3 jobs" in page.locator("#content").inner_text()
    page.get_by_role("button", name="Yes: Retry").click()
    assert "3 jobs are tried again." in page.locator(".messagelist").inner_text()
    assert page.locator("tr", has_text="billing.charge").count() == 0
    assert Job.objects.filter(task="billing.charge", status="SCHEDULED").count() == 3


def test_a_running_job_is_asked_to_end(open_page: OpenPage) -> None:
    a_morning()
    job = Job.objects.get(task="shop.import_catalogue")
    page = open_page(f"{ADMIN}job/{job.pk}/change/")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_label("Reason").fill("wrong catalogue")
    page.get_by_role("button", name="Yes: Cancel").click()
    page.get_by_text("It was asked to end (wrong catalogue)").wait_for()
    assert CancelRequest.objects.get().job_id == job.pk
    lifecycle.cancel("default", [job.pk], reason="again")
    assert CancelRequest.objects.count() == 1


def test_a_queue_is_paused(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(f"{ADMIN}queue/")
    row = page.locator("tr", has_text="mail")
    row.get_by_role("textbox").fill("2h")
    row.get_by_role("button", name="Pause").click()
    page.locator("tr", has_text="mail").get_by_role("button", name="Resume").wait_for()
    queue = Queue.objects.get(name="mail")
    assert queue.paused_at is not None and queue.resume_at is not None


def test_a_schedule_is_added_with_a_preview(open_page: OpenPage) -> None:
    Schedule.objects.all().delete()
    page = open_page(f"{ADMIN}schedule/add/")
    page.get_by_label("Name").fill("every-morning")
    page.get_by_label("Task").select_option("tests.tasks.nothing")
    page.get_by_label("Cron expression").fill("30 7 * * 1-5")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    preview = page.locator("#schedule-preview-body")
    preview.locator("tbody tr").nth(9).wait_for()
    assert "07:30" in preview.inner_text()
    preview.scroll_into_view_if_needed()
    page.get_by_role("button", name="Save", exact=True).click()
    page.locator(".messagelist").wait_for()
    assert Schedule.objects.get().name == "every-morning"


@pytest.mark.parametrize("language", ["de"])
def test_the_pages_speak_the_language_of_the_reader(open_page: OpenPage, language: str, settings: Any) -> None:
    settings.LANGUAGE_CODE = language
    a_morning()
    page = open_page(ADMIN)
    text = page.locator("#content").inner_text()
    for english in ("Queues", "did not run", "Pause updates", "Workers", " ago", "As of"):
        assert english not in text
    assert "nicht gelaufen" in text
