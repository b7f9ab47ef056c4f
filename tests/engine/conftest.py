"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from threading import local

import pytest
from django.db import connection

from django_reliable_jobs.engine.preparing import keep_sessions


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions of this thread are kept, as in a worker, and prepared on from the first statement."""
    monkeypatch.setattr("django_reliable_jobs.engine.preparing._thread", local())
    keep_sessions()
    connection.close()
    yield
    connection.close()
