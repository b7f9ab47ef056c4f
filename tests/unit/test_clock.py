from __future__ import annotations

import threading
from contextvars import copy_context
from datetime import UTC, datetime

import pytest

from django_reliable_jobs import clock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_without_a_test_the_moment_is_the_databases() -> None:
    assert clock.moment() is None


def test_it_is_moved_inside_the_block_only() -> None:
    with clock.moved_to(NOON):
        assert clock.moment() == NOON
        with clock.moved_to(NOON.replace(hour=13)):
            assert clock.moment() == NOON.replace(hour=13)
        assert clock.moment() == NOON
    assert clock.moment() is None


def test_it_is_put_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), clock.moved_to(NOON):
        _ = 1 / 0
    assert clock.moment() is None


def test_other_threads_see_it_only_in_a_copy_of_the_context() -> None:
    seen: list[datetime | None] = []
    with clock.moved_to(NOON):
        threads = [
            threading.Thread(target=lambda: seen.append(clock.moment())),
            threading.Thread(target=copy_context().run, args=(lambda: seen.append(clock.moment()),)),
        ]
        for thread in threads:
            thread.start()
            thread.join()
    assert seen == [None, NOON]
