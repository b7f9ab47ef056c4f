"""What waits for the database has no place on an event loop; its async form has."""

from __future__ import annotations

import asyncio
import os


def refuse_on_event_loop(called: str, instead: str) -> None:
    """Raise SynchronousOnlyOperation, which names what to await instead, if an event loop runs in this thread.

    Django's own error, which would come a moment later, names neither. Its environment variable that allows it, for
    notebooks, counts here too.
    """
    if asyncio._get_running_loop() is None:
        return
    from django.core.exceptions import SynchronousOnlyOperation

    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise SynchronousOnlyOperation(f"{called} would block the event loop that runs here: use {instead}")
