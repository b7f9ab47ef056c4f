"""Rows in the order of a unique key, so many at a time: each page begins behind the key at which the last one ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from operator import attrgetter
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.core.exceptions import FieldDoesNotExist
from django.db import router
from django.db.models import BooleanField, F, Field, Func, Model, QuerySet, Value
from django.db.models.constants import LOOKUP_SEP
from django.db.models.manager import BaseManager

from django_reliable_jobs.exceptions import InvalidBatches
from django_reliable_jobs.progress import MOST

M = TypeVar("M", bound=Model)
Key = list[Any]  # of one row: a value per field, as JSON

COUNT_COST = 100_000.0  # of the planner, about 5,000,000 rows read one after another: what costs more is estimated


class Rows(Generic[M]):
    """The rows of a queryset by key. Raises InvalidBatches for a queryset or a key that can't give each row once."""

    def __init__(self, source: QuerySet[M] | BaseManager[M], *, by: str | Sequence[str], using: str) -> None:
        queryset: QuerySet[M] = source.all()
        _check_queryset(queryset)
        self.fields = _key_fields(queryset.model, [by] if isinstance(by, str) else list(by))
        self.names = [field.attname for field in self.fields]
        self._queryset = _on(queryset, using).order_by(*self.names)
        self._label = queryset.model._meta.label

    @property
    def label(self) -> str:
        return self._label

    def last_key(self) -> Key | None:
        """Return the key of the last row there is now; None: there is none."""
        backwards = self._without_locks().prefetch_related(None).order_by(*(f"-{name}" for name in self.names))
        row = backwards.values_list(*self.names).first()
        return None if row is None else self._encoded(row)

    def count(self) -> int:
        """Return how many rows there are: counted, or estimated by the planner if that would take long."""
        queryset = self._without_locks().order_by()
        explained = queryset.explain(format="json")
        if not explained:  # Django knows that it has none, as for none() and pk__in=[], and asks nobody
            return 0
        plan = json.loads(explained)[0]["Plan"]
        return queryset.count() if plan["Total Cost"] <= COUNT_COST else min(int(plan["Plan Rows"]), MOST)

    def page(self, after: Key | None, until: Key, size: int) -> list[M]:
        """Return the first rows behind `after`, none behind `until`."""
        rows = list(self.between(after, until)[:size])
        self._check_keys(rows)
        return rows

    def between(self, after: Key | None, until: Key) -> QuerySet[M]:
        """Return the queryset narrowed to the keys behind `after`, up to `until`."""
        if len(self.names) == 1:  # the same in words that Django is quicker with
            [name] = self.names
            bounds = {f"{name}__lte": self._decoded(until)[0]}
            if after is not None:
                bounds[f"{name}__gt"] = self._decoded(after)[0]
            return self._queryset.filter(**bounds)
        bound = [self._compared("<=", until)] + ([] if after is None else [self._compared(">", after)])
        return self._queryset.filter(*bound)

    def key_of(self, row: M) -> Key:
        return self._encoded([getattr(row, name) for name in self.names])

    def _without_locks(self) -> QuerySet[M]:
        queryset = self._queryset.all()
        queryset.query.select_for_update = False
        return queryset

    def _compared(self, operator: str, key: Key) -> Func:
        """Return `(a, b) > (x, y)`: compared as PostgreSQL compares rows, which an index on both answers."""
        pairs = zip(self.fields, self._decoded(key), strict=True)
        return Func(
            _row(*map(F, self.names)),
            _row(*(Value(value, output_field=_plain(field)) for field, value in pairs)),
            template="%(expressions)s",
            arg_joiner=f" {operator} ",
            output_field=BooleanField(),
        )

    def _decoded(self, key: Key) -> list[Any]:
        return [field.to_python(each) for field, each in zip(self.fields, key, strict=True)]

    def _encoded(self, values: Sequence[Any]) -> Key:
        return [_encode(field, value) for field, value in zip(self.fields, values, strict=True)]

    def _check_keys(self, rows: list[M]) -> None:
        if rows and (missing := rows[0].get_deferred_fields().intersection(self.names)):
            raise InvalidBatches(f"{self._label}: the key {', '.join(sorted(missing))} is deferred: add it to only()")
        keys = list(map(attrgetter(*self.names), rows))
        for key, following in pairwise(keys):
            if key == following:
                raise InvalidBatches(
                    f"{self._label}: the queryset has row {key} more than once, as a join makes it: add .distinct(),"
                    " or filter with Exists(...)"
                )


def _row(*expressions: Any) -> Func:
    return Func(*expressions, template="(%(expressions)s)", output_field=BooleanField())


def _plain(field: Any) -> Field[Any, Any]:
    """Return the field that says of what type a value is: for a foreign key, what it refers to."""
    while field.remote_field is not None:
        field = field.target_field
    return field  # type: ignore[no-any-return]


def _check_queryset(queryset: QuerySet[Any]) -> None:
    query, label = queryset.query, queryset.model._meta.label
    if query.combinator:
        fault = f"a {query.combinator}() has no key to go on from: go through its querysets one after another"
    elif query.is_sliced:
        fault = "it is sliced: filter it instead, and give the size of a batch as size="
    elif query.order_by or query.extra_order_by or not query.standard_ordering:
        fault = "it is ordered: batches go in the order of by=, so drop order_by() and reverse()"
    elif query.distinct_fields:
        fault = "distinct() with fields keeps one row of many by an order of its own: use a filter with Exists(...)"
    elif queryset._fields is not None:  # type: ignore[attr-defined]
        fault = "values() and values_list() have no key to go on from: use only(...)"
    elif any(each.contains_over_clause for each in query.annotations.values()):
        fault = "a window function would see one batch, not all rows: compute it in a query of its own"
    elif query.select_for_update and query.select_for_update_skip_locked:
        fault = "skip_locked=True would leave out each row that is locked just then: wait for it, or take nowait=True"
    else:
        return
    raise InvalidBatches(f"{label}: this queryset can't be gone through in batches: {fault}")


def _key_fields(model: type[Model], names: list[str]) -> list[Any]:
    label, fields = model._meta.label, list[Any]()
    for name in names:
        if name == "pk":
            fields += model._meta.pk_fields
            continue
        try:
            field = model._meta.get_field(name)
        except FieldDoesNotExist:
            hint = " of the model itself" if LOOKUP_SEP in name else ""
            hint = "; batches go upwards" if name.startswith("-") else hint
            raise InvalidBatches(f"{label}: by={name!r} is no field{hint}") from None
        if not getattr(field, "concrete", False) or field.many_to_many:
            raise InvalidBatches(f"{label}: by={name!r} has no column to go by")
        if field.null:
            raise InvalidBatches(f"{label}: by={name!r} may be NULL, and rows without a key would be left out")
        fields.append(field)
    if not fields or not _is_unique(model, fields):
        raise InvalidBatches(
            f"{label}: by={', '.join(names)!r} is not unique, so rows between two batches would be left out:"
            f" add 'pk', as in by=({', '.join(map(repr, [*names, 'pk']))})"
        )
    return fields


def _is_unique(model: type[Model], fields: list[Any]) -> bool:
    if any(field.unique for field in fields):
        return True
    names = {field.name for field in fields}
    uniques: list[set[str]] = [{field.name for field in model._meta.pk_fields}]
    for each in (model, *model._meta.all_parents):
        uniques += map(set, each._meta.unique_together)
        uniques += (set(constraint.fields) for constraint in each._meta.total_unique_constraints)
    return any(unique <= names for unique in uniques)


def _on(queryset: QuerySet[M], using: str) -> QuerySet[M]:
    """Return the queryset on the database that holds the job: only there can rows and checkpoint commit together."""
    alias = queryset._db or router.db_for_write(queryset.model)  # type: ignore[attr-defined]
    if alias != using:
        raise InvalidBatches(
            f"{queryset.model._meta.label}: its rows are in the database {alias!r}, the job is in {using!r}, and a"
            f" batch commits in one: enqueue the job with task.using(database={alias!r})"
        )
    return queryset.using(using)


def _encode(field: Any, value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, str | int | float):
        return value
    raise InvalidBatches(
        f"{field.model._meta.label}: by={field.name!r} has values of type {type(value).__qualname__}, which a"
        " checkpoint can't keep: go by a number, text, moment or UUID"
    )
