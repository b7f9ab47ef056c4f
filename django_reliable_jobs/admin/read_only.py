"""Pages that show rows and change none, however many there are."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_reliable_jobs.engine.transaction import default_database

MOST_LISTED = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than MOST_LISTED, which takes the same time however many rows there are."""

    @cached_property
    def count(self) -> int:
        return min(self._counted, MOST_LISTED)

    @property
    def has_more(self) -> bool:
        """Return whether there are rows after the last page."""
        return self._counted > MOST_LISTED

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        number: int = rows.order_by()[: MOST_LISTED + 1].count()
        return number


class ReadOnly:
    """Nobody adds, changes or deletes; who may view, views."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """A list that counts and sorts only what an index has, and a page for each row."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a count of the whole table for each value of a filter
    sortable_by = ()
    list_per_page = 50

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Where the jobs are written, not a replica that lags behind.
        return super().get_queryset(request).using(default_database())
