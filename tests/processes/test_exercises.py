"""The exercises show what their pages say, on a real PostgreSQL, with real workers."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection

from django_reliable_jobs.models import Job, Schedule
from tests.pages import DOCS
from tests.workers import WorkerProcess

StartWorker = Callable[..., WorkerProcess]


def perform(start_worker: StartWorker, number: int) -> str:
    """Run one; return what it printed."""
    exercise = start_worker(str(number), command="exercise", ready=False)
    assert exercise.wait(timeout=400) == 0, exercise.output
    return exercise.output


def shown_on_page(number: int) -> list[str]:
    """The conclusions that the exercise's page quotes, without what differs from machine to machine."""
    [page] = (DOCS / "exercises").glob(f"{number}-*.md")
    lines = re.findall(r"^  => .+$", page.read_text(), re.MULTILINE)
    assert lines, f"{page.name} shows no conclusion"
    return [without_figures(line) for line in lines]


def without_figures(text: str) -> str:
    """Without what depends on how busy the machine is. What must hold, the exercise itself looks at."""
    text = re.sub(r"[\d,]+ jobs a second", "many jobs a second", text)
    return re.sub(r"(succeeded|cancelled|side by side): \d+", r"\1: #", text)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_exercise_comes_to_what_its_page_says_and_leaves_nothing_behind(
    number: int, start_worker: StartWorker
) -> None:
    output = without_figures(perform(start_worker, number))
    assert [line for line in shown_on_page(number) if line not in output] == []
    assert not Job.objects.filter(queue_name="exercise").exists()
    assert not Schedule.objects.filter(name__startswith="exercise").exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'exercise'")
        assert cursor.fetchone() == (0,)


def test_the_queue_in_fifty_lines_has_fifty() -> None:
    source = (DOCS.parent / "testproject" / "exercises" / "queue_in_fifty_lines.py").read_text()
    assert len(source.splitlines()) <= 50
