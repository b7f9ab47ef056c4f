"""Pages that show themselves anew leave in peace who reads, types or listens, and go easy on a server that is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from django_reliable_jobs.engine import progress
from django_reliable_jobs.engine.progress import Report
from django_reliable_jobs.models import Attempt, Job, Progress, Queue
from tests.browser.scene import a_morning

OpenPage = Callable[..., Any]

ADMIN = "/admin/django_reliable_jobs/"
FOCUSED = "document.activeElement.textContent.trim()"


def a_running_job() -> Job:
    a_morning()
    job = Job.objects.get(task="shop.import_catalogue")
    moment = timezone.now()
    times = {"started_at": moment, "finished_at": moment}
    Attempt.objects.create(job=job, number=1, claim=1, outcome="failed", traceback="Traceback: x", worker="a", **times)
    return job


def ends(job: Job) -> None:
    Progress.objects.all().delete()
    Job.objects.filter(pk=job.pk).update(status="SUCCEEDED", finished_at=timezone.now())


def test_a_link_that_has_the_focus_keeps_it(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(ADMIN)
    page.get_by_role("link", name="nightly-invoices", exact=True).focus()
    Queue.objects.create(name="brand-new", paused_at=timezone.now())
    page.get_by_text("brand-new").wait_for()
    assert page.evaluate(FOCUSED) == "nightly-invoices"


def test_a_traceback_that_was_closed_stays_closed_and_progress_goes_on(open_page: OpenPage) -> None:
    job = a_running_job()
    page = open_page(f"{ADMIN}job/{job.pk}/change/")
    page.locator("summary").click()
    report = {"token": job.token, "job_id": job.pk, "run": 1, "claim": 1, "total": 10_000, "skipped": 3}
    progress.write("default", [Report(**report, done=9000, rate=10.0, message="")])  # type: ignore[arg-type]
    page.locator("progress[value='9000']").wait_for()
    assert page.locator("details[open]").count() == 0
    assert page.evaluate(FOCUSED) == "Traceback"


def test_a_change_of_the_status_is_announced(open_page: OpenPage) -> None:
    job = a_running_job()
    page = open_page(f"{ADMIN}job/{job.pk}/change/")
    news = page.locator("[role=status][data-news]")
    assert news.text_content() == "", "nothing is new"
    ends(job)
    page.locator(".reliable-head .reliable-mark-well").wait_for()
    assert news.text_content() == "succeeded"


def test_the_end_is_shown_even_if_what_had_the_focus_is_gone(open_page: OpenPage) -> None:
    job = a_running_job()
    page = open_page(f"{ADMIN}job/{job.pk}/change/")
    page.get_by_role("button", name="Cancel").focus()
    ends(job)
    with page.expect_response(lambda response: response.headers.get("x-refresh") == "stop"):
        pass
    assert page.locator(".reliable-head .reliable-mark-running").count() == 1, "it is in use"
    page.evaluate("document.activeElement.blur()")
    page.locator(".reliable-head .reliable-mark-well").wait_for()


def test_nothing_is_asked_for_while_nobody_looks(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(ADMIN)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => window.isAway === true}); window.isAway = true;"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_response("**/overview/"):
        page.evaluate("window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_a_server_that_does_not_answer_is_told_of_and_asked_less_and_less_often(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(ADMIN)
    page.clock.install()
    page.evaluate("() => { window.tries = 0; window.fetch = () => { window.tries += 1; return Promise.reject(); }; }")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    for _ in range(60):
        page.clock.run_for(5_000)
    page.get_by_text("No answer from the server").wait_for()
    assert 5 <= page.evaluate("window.tries") <= 12


def test_a_telephone_shows_the_buttons_without_scrolling_sideways(open_page: OpenPage) -> None:
    a_morning()
    page = open_page(f"{ADMIN}job/dead/")
    page.set_viewport_size({"width": 390, "height": 844})
    for path, name in (("job/dead/", "Retry"), ("queue/", "Pause: mail"), ("queue/", "Resume: newsletter")):
        page.goto(page.url.partition("/admin/")[0] + ADMIN + path)
        box = page.get_by_role("button", name=name).first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, path
