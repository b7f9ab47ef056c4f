"""`manage.py jobs` as the tests call it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def jobs(*arguments: object, stdout: io.StringIO | None = None) -> str:
    """Return what the command prints."""
    stdout = stdout or io.StringIO()
    call_command("jobs", *map(str, arguments), stdout=stdout, no_color=True)
    return stdout.getvalue()


def jobs_json(*arguments: object) -> Any:
    return json.loads(jobs(*arguments, "--json"))


def failing(*arguments: object, code: int = 1) -> tuple[str, str]:
    """Return what was printed before the command failed, and the failure."""
    stdout = io.StringIO()
    with pytest.raises(CommandError) as caught:
        jobs(*arguments, stdout=stdout)
    assert caught.value.returncode == code
    return stdout.getvalue(), str(caught.value)
