"""A list that takes too long is ended by the database, and says what makes it shorter."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from django_reliable_jobs.admin import job_paging, patience
from django_reliable_jobs.admin.job_paging import Page
from tests import tasks
from tests.edges.test_admin_job_list import JOBS

WORDS = "The search took too long and was ended."


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search takes a minute, and somebody has patience for a moment."""

    def page(*args: Any, **kwargs: Any) -> Page:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
        return Page(jobs=[])

    monkeypatch.setattr(job_paging, "page", page)
    monkeypatch.setattr(patience, "SECONDS", 0.05)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("slow")
def test_a_search_that_takes_too_long_is_ended_and_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = admin_client.get(f"{JOBS}?task=x")
    assert (response.status_code, response["Location"]) == (302, JOBS)
    monkeypatch.undo()
    assert WORDS in admin_client.get(JOBS).content.decode()
    assert WORDS not in admin_client.get(JOBS).content.decode()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("slow")
def test_a_list_that_is_not_narrowed_is_not_asked_for_again_and_again(admin_client: Client) -> None:
    with pytest.raises(patience.OutOfPatience):
        admin_client.get(JOBS)


@pytest.mark.django_db(transaction=True)
def test_the_limit_is_gone_with_the_page(admin_client: Client) -> None:
    tasks.nothing.enqueue()
    assert admin_client.get(JOBS).status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


@pytest.mark.django_db
def test_other_errors_of_the_database_are_themselves() -> None:
    with pytest.raises(OperationalError, match="division"), patience.patience("default"):
        raise OperationalError("division")
