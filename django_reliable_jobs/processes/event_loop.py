"""The one event loop of a process, on which `async def` tasks run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async

from django_reliable_jobs.processes import connections

if TYPE_CHECKING:
    from django_reliable_jobs.processes.pool import HeldJob


class EventLoop:
    """Starts its thread with the first coroutine; the pool thread that handed it in waits for its result."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def run(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: list[Any],
        kwargs: dict[str, Any],
        *,
        held: HeldJob,
    ) -> Any:
        """Run a coroutine function to its end and return its result, or raise what it raised.

        The context of the calling thread (the current job) goes with it. An interruption of `held` cancels the
        coroutine.
        """
        future = asyncio.run_coroutine_threadsafe(_with_own_thread(function, args, kwargs), self._running())
        held.cancel_coroutine = future.cancel
        return future.result()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="reliable-jobs-async", daemon=True).start()
            return self._loop


async def _with_own_thread(
    function: Callable[..., Coroutine[Any, Any, Any]], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    # As in an ASGI request: what the coroutine hands to sync_to_async, the ORM first of all, runs in one thread of its
    # own, and the connections of that thread are closed when it has ended.
    async with ThreadSensitiveContext():
        try:
            return await function(*args, **kwargs)
        finally:
            await sync_to_async(connections.close_all)()
