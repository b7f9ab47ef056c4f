"""What a job goes through in batches: the rows of a queryset by key, or what a function yields from a cursor on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from django.db.models import QuerySet

from django_reliable_jobs.exceptions import InvalidBatches
from django_reliable_jobs.keyset import Key, Rows

T = TypeVar("T")

WAY_OUT = "give the loop another name=, or start the job over with `manage.py jobs retry --from-start`"

State = dict[str, Any]  # JSON: after, done, skipped, total, and what the source adds


class Source(Protocol[T]):
    """Where the items come from. `after` is the cursor of the last committed item, None at first."""

    name: str

    def first_state(self) -> State: ...
    def count(self) -> int | None: ...
    def begin(self, state: State) -> None: ...
    def has_more(self, after: Any) -> bool: ...
    def read(self, after: Any) -> list[T]: ...  # inside the batch's transaction
    def cursor(self) -> Any: ...  # of the last item that was read
    def rows(self, after: Any) -> QuerySet[Any]: ...
    def close(self) -> None: ...


class QuerysetSource(Generic[T]):
    """The rows of a queryset, up to the last one that it had when the job first came here."""

    def __init__(self, rows: Rows[Any], size: int) -> None:
        self.name = rows.label
        self._rows = rows
        self._size = size
        self._until: Key | None = None
        self._cursor: Key | None = None

    def first_state(self) -> State:
        return {"by": self._rows.names, "until": self._rows.last_key()}

    def count(self) -> int:
        return self._rows.count()

    def begin(self, state: State) -> None:
        if (began_by := state.get("by", "cursors")) != self._rows.names:
            raise InvalidBatches(
                f"{self.name}: the job began by {began_by} and can't go on by {self._rows.names}: {WAY_OUT}"
            )
        self._until = state["until"]

    def has_more(self, after: Any) -> bool:
        return self._until is not None and after != self._until

    def read(self, after: Any) -> list[T]:
        assert self._until is not None  # noqa: S101 - has_more() said so
        rows = self._rows.page(after, self._until, self._size)
        self._cursor = self._rows.key_of(rows[-1]) if len(rows) == self._size else self._until
        return rows

    def cursor(self) -> Any:
        return self._cursor

    def rows(self, after: Any) -> QuerySet[Any]:
        assert self._cursor is not None  # noqa: S101 - inside a batch
        return self._rows.between(after, self._cursor)

    def close(self) -> None:
        pass


class CursorSource(Generic[T]):
    """What a function yields from a cursor on. The next items are taken before the batch's transaction begins."""

    def __init__(self, follow: Callable[[Any], Iterable[tuple[T, Any]]], size: int) -> None:
        self.name = getattr(follow, "__qualname__", type(follow).__qualname__)
        self._follow = follow
        self._size = size
        self._pairs: Iterator[tuple[T, Any]] = iter(())
        self._next: list[tuple[T, Any]] = []
        self._cursor: Any = None

    def first_state(self) -> State:
        return {}

    def count(self) -> None:
        return None

    def begin(self, state: State) -> None:
        if "by" in state:
            raise InvalidBatches(f"{self.name}: the job began by {state['by']} and can't go on by cursors: {WAY_OUT}")
        pairs = self._follow(state["after"])
        if not isinstance(pairs, Iterable):
            raise InvalidBatches(f"{self.name} returns (item, cursor) pairs, one after another, not {pairs!r:.80}")
        self._pairs = iter(pairs)

    def has_more(self, after: Any) -> bool:
        self._next = list(islice(self._pairs, self._size))
        return bool(self._next)

    def read(self, after: Any) -> list[T]:
        pairs, self._next = self._next, []
        try:
            items = [item for item, _ in pairs]
        except (TypeError, ValueError):
            raise InvalidBatches(f"{self.name} gives (item, cursor) pairs, not {pairs[0]!r:.80}") from None
        self._cursor = pairs[-1][1]
        if self._cursor is None:
            raise InvalidBatches(
                f"{self.name}: the cursor None means the start, from which a later attempt would begin"
            )
        return items

    def cursor(self) -> Any:
        return self._cursor

    def rows(self, after: Any) -> QuerySet[Any]:
        raise InvalidBatches("a batch has `rows` if it comes from a queryset")

    def close(self) -> None:
        if callable(close := getattr(self._pairs, "close", None)):
            close()
