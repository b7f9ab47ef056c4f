"""Going through many rows or items in a job: each batch is one transaction with its checkpoint, under the fence."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.db.models.manager import BaseManager

from django_reliable_jobs.arguments import dump, without_bad_characters
from django_reliable_jobs.batch_sources import CursorSource, QuerysetSource, Source, State
from django_reliable_jobs.conf import settings
from django_reliable_jobs.context import OF_BATCHES, JobContext
from django_reliable_jobs.exceptions import InvalidBatches, RunTimeOver
from django_reliable_jobs.keyset import Rows
from django_reliable_jobs.progress import whole
from django_reliable_jobs.retry import as_seconds

logger = logging.getLogger("django_reliable_jobs")

T = TypeVar("T")

PREFIX = OF_BATCHES
SKIPPED = ":skipped"
MOST_SKIPPED = 100  # kept one by one; all are counted
LONGEST_NAME = 255 - len(PREFIX) - len(SKIPPED)
LARGEST_SIZE = 2**31 - 1
LONGEST_LABEL = 200
LONGEST_ERROR = 500


def over(
    context: JobContext,
    source: Any,
    *,
    transaction: Callable[[], AbstractContextManager[None]],
    size: int = 1000,
    by: str | Sequence[str] = "pk",
    name: str | None = None,
    total: int | None = None,
    max_run_time: float | timedelta | None = None,
) -> Batches[Any]:
    """Return the batches of a source, each in a `transaction`. See `JobContext.batches`."""
    if not isinstance(size, int) or not 1 <= size <= LARGEST_SIZE:
        raise InvalidBatches(f"size is how many rows a batch has, from 1 on, not {size!r}")
    chosen: Source[Any]
    if isinstance(source, QuerySet | BaseManager):
        chosen = QuerysetSource(Rows(source, by=by, using=context.using), size)
    elif callable(source) and not (isinstance(source, type) and issubclass(source, Model)):
        chosen = CursorSource(source, size)
    else:
        raise InvalidBatches(
            f"batches() goes through a QuerySet, or a function that takes a cursor and returns (item, cursor) pairs,"
            f" not {source!r:.80}"
        )
    seconds = as_seconds(max_run_time)
    name = _checked_name(name or chosen.name)
    try:
        total = None if total is None else whole("total", total)
    except TypeError as error:
        raise InvalidBatches(str(error)) from None
    return Batches(context, chosen, transaction=transaction, name=name, total=total, max_run_time=seconds)


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > LONGEST_NAME or name.endswith(SKIPPED):
        raise InvalidBatches(
            f"name= of batches() is text of up to {LONGEST_NAME} characters that does not end with {SKIPPED!r},"
            f" not {name!r:.80}"
        )
    return name


class Batches(Generic[T]):
    """The batches of one loop of a job, to be gone through once."""

    def __init__(
        self,
        context: JobContext,
        source: Source[T],
        *,
        transaction: Callable[[], AbstractContextManager[None]],
        name: str,
        total: int | None,
        max_run_time: float | None,
    ) -> None:
        self.name = name
        self._context = context
        self._source = source
        self._transaction = transaction
        self._given_total = total
        self._max_run_time = max_run_time
        self._state: State = {"after": None, "done": 0, "skipped": 0, "total": None}
        self._skipped: list[dict[str, str]] = []

    @property
    def done(self) -> int:
        """How many items the committed batches had, of this attempt and those before it; skipped ones included."""
        return int(self._state["done"])

    @property
    def skipped(self) -> int:
        """How many of them were skipped."""
        return int(self._state["skipped"])

    @property
    def total(self) -> int | None:
        """How many items there are, as far as is known; estimated for a queryset with very many rows."""
        total = self._state["total"] if self._given_total is None else self._given_total
        return None if total is None else max(int(total), self.done)

    def __iter__(self) -> Iterator[Batch[T]]:
        """Yield each batch, to be entered with `with`; ends the attempt between two if it should end."""
        self._resume()
        began, committed = time.monotonic(), 0
        try:
            while self._source.has_more(self._state["after"]):
                self._context.raise_if_stopping()
                if committed and self._max_run_time is not None and time.monotonic() - began >= self._max_run_time:
                    raise RunTimeOver(f"it has run for its max_run_time of {self._max_run_time:g} s")
                batch = Batch(self._commit, self.name)
                yield batch
                batch.refuse_to_go_on()
                committed += 1
        finally:
            self._source.close()
        self._tell(self.done)

    def _resume(self) -> None:
        state = self._context.load_checkpoint(PREFIX + self.name)
        if state is None:
            total = self._source.count() if self._given_total is None else None
            state = {**self._state, **self._source.first_state(), "total": total}
            self._save("", state)  # so that the end stays where it is
        else:
            self._skipped = self._context.load_checkpoint(PREFIX + self.name + SKIPPED, [])
        self._source.begin(state)
        self._state = state
        self._tell(self.total)

    @contextmanager
    def _commit(self, batch: Batch[T]) -> Iterator[None]:
        """Run the block of a batch in its transaction; the fence is the last statement before COMMIT."""
        after = self._state["after"]
        with self._transaction():
            batch.begin(self._source.read(after), lambda: self._source.rows(after))
            yield
            state = {
                **self._state,
                "after": self._source.cursor(),
                "done": self.done + len(batch),
                "skipped": self.skipped + batch.skipped,
            }
            skipped = _as_many_as_fit([*self._skipped, *batch.faults])
            if len(skipped) > len(self._skipped):
                self._save(SKIPPED, skipped)
            self._save("", state)
        self._state, self._skipped = state, skipped
        self._tell(self.total)

    def _save(self, of: str, value: Any) -> None:
        self._context._port.save(PREFIX + self.name + of, value)

    def _tell(self, total: int | None) -> None:
        self._context._progress.count(self.done, total, self.skipped)


def _as_many_as_fit(faults: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the first faults, so many of them that no error text can make the checkpoint too large."""
    left, kept = settings.MAX_RESULT_BYTES // 2, 0
    for fault in faults[:MOST_SKIPPED]:
        left -= len(dump(fault))
        if left < 0:
            break
        kept += 1
    return faults[:kept]


class Batch(Generic[T]):
    """Some of the items. `with batch:` is one transaction; iterate, measure and index the batch inside it."""

    def __init__(self, commit: Callable[[Batch[T]], AbstractContextManager[None]], name: str) -> None:
        self._commit = commit
        self._name = name
        self._items: list[T] | None = None
        self._find_rows: Callable[[], QuerySet[Any]] | None = None
        self._block: AbstractContextManager[None] | None = None
        self._count = 0
        self._is_committed = False
        self.skipped = 0
        self.faults: list[dict[str, str]] = []

    def __enter__(self) -> Batch[T]:
        if self._block is not None:
            raise RuntimeError(f"{self._name}: a batch is entered once")
        self._block = self._commit(self)
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None  # noqa: S101 - entered
        self._items = None
        self._block.__exit__(kind, error, trace)
        self._is_committed = error is None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> T:
        return self.items[index]

    @property
    def items(self) -> list[T]:
        """The items of the batch. Empty if all the rows that were left have been deleted meanwhile."""
        if self._items is None:
            raise RuntimeError(f"{self._name}: the items of a batch are there inside its `with batch:` only")
        return self._items

    @property
    def rows(self) -> QuerySet[Any]:
        """The queryset narrowed to this batch, for `batch.rows.update(...)`."""
        if self._find_rows is None or self._items is None:
            raise RuntimeError(f"{self._name}: the rows of a batch are there inside its `with batch:` only")
        return self._find_rows()

    def skip(self, item: T, error: BaseException | str = "") -> None:
        """Note that an item could not be done; the job goes on, and says at its end how many there were."""
        if self._items is None:
            raise RuntimeError(f"{self._name}: skip() belongs inside `with batch:`")
        told = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        label = f"{item._meta.object_name} {item.pk}" if isinstance(item, Model) else str(item)
        self.skipped += 1
        if self.skipped <= MOST_SKIPPED:
            label, told = without_bad_characters(label), without_bad_characters(told)
            self.faults.append({"item": label[:LONGEST_LABEL], "error": told[:LONGEST_ERROR]})
        logger.warning("%s: %s is skipped: %s", self._name, label, told)

    def begin(self, items: list[T], find_rows: Callable[[], QuerySet[Any]]) -> None:
        """Take what was read in the transaction that has begun."""
        self._items, self._find_rows, self._count = items, find_rows, len(items)

    def refuse_to_go_on(self) -> None:
        """Raise RuntimeError if the batch was not committed: the next one would leave its items out."""
        if self._block is None:
            raise RuntimeError(f"{self._name}: enter each batch: `for batch in batches:` `with batch:` ...")
        if not self._is_committed:
            raise RuntimeError(f"{self._name}: a batch failed, and the loop went on; let its error end the attempt")
