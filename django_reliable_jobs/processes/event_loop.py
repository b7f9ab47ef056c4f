"""The one event loop of a process, on which `async def` tasks run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async

from django_reliable_jobs.processes import connections

if TYPE_CHECKING:
    from django_reliable_jobs.processes.pool import HeldJob

logger = logging.getLogger("django_reliable_jobs")

Function = Callable[..., Coroutine[Any, Any, Any]]


class EventLoop:
    """Starts its thread with the first coroutine; the pool thread that handed it in waits for its result."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def run(self, function: Function, args: list[Any], kwargs: dict[str, Any], *, held: HeldJob) -> Any:
        """Run a coroutine function to its end and return its result, or raise what it raised.

        The context of the calling thread (the current job) goes with it. An interruption of `held` cancels the
        coroutine; it has ended when it has ended, and not before.
        """
        loop, ended = self._running(), Future[Any]()

        def start() -> None:
            running = loop.create_task(_in_own_thread(function, args, kwargs, held))
            held.cancel_coroutine = lambda: loop.call_soon_threadsafe(running.cancel)
            running.add_done_callback(lambda _: _hand_over(running, ended))

        loop.call_soon_threadsafe(start)
        return ended.result()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run_forever, args=[self._loop], name="reliable-jobs-async", daemon=True
                ).start()
            return self._loop


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:  # SystemExit in a coroutine or a callback ends it, for all the others too
        try:
            loop.run_forever()
        except BaseException as error:
            logger.warning("the event loop was ended from inside, by %r; it goes on", error)


def _hand_over(running: asyncio.Task[Any], ended: Future[Any]) -> None:
    if running.cancelled():
        ended.set_exception(asyncio.CancelledError())
    elif (error := running.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(running.result())


async def _in_own_thread(function: Function, args: list[Any], kwargs: dict[str, Any], held: HeldJob) -> Any:
    # As in an ASGI request: what the coroutine hands to sync_to_async, the ORM first of all, runs in one thread of its
    # own, and the connections of that thread are closed when it has ended.
    async with ThreadSensitiveContext():
        held.thread = await sync_to_async(connections.guard)(held.flag, nullcontext)
        try:
            return await function(*args, **kwargs)
        finally:
            await sync_to_async(_leave_thread)()


def _leave_thread() -> None:
    connections.unguard()
    connections.close_all()
