"""A COMMIT that happens, and whose answer never comes."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection


def lose_the_answer_to_the_next_commit(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let the next COMMIT happen, and break the connection before its answer; return a list that is then not empty."""
    commit, lost = connection._commit, list[bool]()

    def committing() -> None:
        commit()
        if not lost:
            lost.append(True)
            connection.connection.close()
            raise OperationalError("the answer was lost")

    monkeypatch.setattr(connection, "_commit", committing)
    return lost
