"""The cursor of sessions that are used often."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.waiting import Wait


class PreparingCursor(psycopg.Cursor[Any]):
    """Prepares each statement at its first execution, whatever else is done on the connection.

    Does what Django's cursor does besides: that takes longer than all of an INSERT's checks. `about_to_wait` is called
    once in each execution, when the whole message is on its way and the answer has not come, or else at the end.
    """

    def __init__(self, connection: BaseDatabaseWrapper, about_to_wait: Callable[[], None] | None = None) -> None:
        super().__init__(connection.connection)
        self._django = connection
        self._about_to_wait = about_to_wait

    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        self._django.validate_no_broken_transaction()
        before = self.connection.prepare_threshold
        self.connection.prepare_threshold = 0
        try:
            with self._django.wrap_database_errors:
                super().execute(query, params, prepare=True)
        finally:
            self.connection.prepare_threshold = before
        wire = self.connection.pgconn
        if wire.pipeline_status:  # the server is to answer when it is done, not when it is asked for the answer
            wire.send_flush_request()
            wire.flush()
        return self

    def _execute_gen(self, *args: Any, **options: Any) -> Any:
        sending = super()._execute_gen(*args, **options)
        return sending if self._about_to_wait is None else _noticing(sending, self._about_to_wait)


def _noticing(sending: Generator[Any, Any, Any], about_to_wait: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Go through the steps of an execution, and call `about_to_wait` when it first has nothing to do but to read."""
    error: BaseException | None = None
    has_noticed = False

    def notice() -> None:
        nonlocal error, has_noticed
        has_noticed = True
        try:
            about_to_wait()
        except BaseException as caught:  # the answer is to be read first: else the connection is of no more use
            error = caught

    answer = None
    try:
        while True:
            wanted = sending.send(answer)
            if wanted == Wait.R and not has_noticed:
                notice()
            answer = yield wanted
    except StopIteration:
        pass
    if not has_noticed:
        notice()
    if error is not None:
        raise error
