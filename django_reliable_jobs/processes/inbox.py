"""What the other threads tell the worker's own thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A line of messages for one reader, who is woken for many at once.

    To be woken for each of thousands of messages a second costs more than to read them. `put` and `put_urgent` are
    safe in a signal handler that interrupts the reader: no lock is held that they wait for.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()  # unlike an Event, it may be rung by a signal handler
        self._enough = 1  # messages that the reader waits for
        self._is_urgent = False

    def put(self, item: T) -> None:
        """Leave a message; the reader is woken once there are as many as it waits for."""
        self._items.append(item)
        if len(self._items) >= self._enough:
            self._bell.put(None)

    def put_urgent(self, item: T) -> None:
        """Leave a message and wake the reader."""
        self._items.append(item)
        self._is_urgent = True
        self._bell.put(None)

    def take(self, *, timeout: float, enough: int = 1, about_to_wait: Callable[[], None] = lambda: None) -> list[T]:
        """Return what there is, after a wait of at most `timeout` seconds for `enough` messages or an urgent one.

        `about_to_wait` is called first if there is something to wait for.
        """
        self._enough = enough
        try:
            while not self._bell.empty():  # rung for what was taken before
                self._bell.get_nowait()
            if timeout > 0 and len(self._items) < enough and not self._is_urgent:
                about_to_wait()
                self._bell.get(timeout=timeout)
        except Empty:
            pass
        self._is_urgent = False
        return [self._items.popleft() for _ in range(len(self._items))]
