"""Who leads, on the database's clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings

from django_reliable_jobs.engine import leader
from django_reliable_jobs.engine.heartbeat import new_identity
from django_reliable_jobs.engine.leader import Candidate
from django_reliable_jobs.models import Leader
from tests.actors import on_stage

pytestmark = pytest.mark.django_db


def a_candidate(name: str = "scheduler") -> Candidate:
    return Candidate(name=name, identity=new_identity("host", 7))  # all on one host, under one process id


def run_out() -> None:
    Leader.objects.update(expires_at=Now())


def test_the_first_leads_and_the_second_stands_by() -> None:
    first, second = leader.stand("default", a_candidate()), leader.stand("default", a_candidate())
    assert (first.term, second.term) == (1, None)
    row = Leader.objects.get()
    assert (row.holder, row.term, row.host, row.pid) == (first.identity.id, 1, "host", 7)


def test_each_office_has_a_leader_of_its_own() -> None:
    assert leader.stand("default", a_candidate("a")).term == 1
    assert leader.stand("default", a_candidate("b")).term == 1


@override_settings(RELIABLE_JOBS={"LEADER_SECONDS": 100})
def test_renewal_moves_the_end_of_the_term_by_the_databases_clock() -> None:
    first = leader.stand("default", a_candidate())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_reliable_jobs_leader SET expires_at = clock_timestamp() + interval '1 second'")
        assert leader.stand("default", first) == first
        cursor.execute("SELECT expires_at - clock_timestamp() > interval '95 seconds' FROM django_reliable_jobs_leader")
        assert cursor.fetchone()[0]


def test_a_term_that_ran_out_can_not_be_renewed_but_be_taken() -> None:
    first = leader.stand("default", a_candidate())
    run_out()
    first = leader.stand("default", first)
    assert first.term is None
    second = leader.stand("default", a_candidate())
    assert second.term == 2
    assert leader.stand("default", first).term is None


def test_renewal_names_holder_and_term() -> None:
    first = leader.stand("default", a_candidate())
    impostor = replace(a_candidate(), term=first.term)
    assert leader.stand("default", impostor).term is None
    assert leader.stand("default", replace(first, term=99)).term is None
    assert leader.stand("default", first).term == first.term


def test_who_lost_its_term_to_an_error_takes_it_again_at_once() -> None:
    first = leader.stand("default", a_candidate())
    assert leader.stand("default", replace(first, term=None)).term == 2


def test_who_resigns_is_followed_at_once() -> None:
    first = leader.stand("default", a_candidate())
    leader.resign("default", first)
    assert leader.stand("default", a_candidate()).term == 2
    leader.resign("default", first)  # no longer its own
    assert leader.stand("default", a_candidate()).term is None


@pytest.mark.django_db(transaction=True)
def test_two_at_once_get_one_term() -> None:
    with on_stage("winner", "loser") as (winner, loser):
        winner.begins()
        assert winner.does(leader.stand, "default", a_candidate()).term == 1
        waiting = loser.starts(leader.stand, "default", a_candidate())
        assert waiting.result(timeout=60).term is None, "it waits a second for the other's answer, and no longer"
        winner.commits()
        run_out()
        winner.begins()
        assert winner.does(leader.stand, "default", a_candidate()).term == 2
        assert loser.does(leader.stand, "default", a_candidate()).term is None
        winner.commits()


@pytest.mark.django_db(transaction=True)
def test_on_a_read_only_server_nobody_leads() -> None:
    first = leader.stand("default", a_candidate())
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    assert leader.stand("default", first).term is None
    assert connection.connection is None, "the next try may reach another server"
    assert leader.stand("default", first) == first


@pytest.mark.django_db(transaction=True)
def test_when_the_database_does_not_answer_nobody_leads() -> None:
    first = leader.stand("default", a_candidate())
    connection.connection.close()
    assert leader.stand("default", first).term is None
    assert leader.stand("default", first) == first
