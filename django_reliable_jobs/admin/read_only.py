"""Pages that show rows and change none, however many there are."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
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


class OnlyItsFilters:
    """A list that is narrowed by its filters, and by no other column that an address names.

    Django lets an address ask for any column, `?kwargs__password__startswith=a`: an answer to that tells, letter by
    letter, what the pages do not show.
    """

    def lookup_allowed(self: Any, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Return whether an address may ask for it."""
        return lookup.removesuffix("__exact") in {
            str(getattr(each, "parameter_name", each)) for each in self.list_filter
        }

    def get_object(self: Any, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        if "\0" in unquote(object_id):
            return None
        return super().get_object(request, object_id, from_field)  # type: ignore[misc]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Refuse what no page of ours sends: texts that no database holds, rows chosen by what is no id."""
        if any("\0" in value for _, values in request.GET.lists() for value in values):
            raise BadRequest("a NUL in an address")
        if not all(each.isascii() and each.isdigit() for each in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise BadRequest("rows are chosen by their ids")
        response: HttpResponse = super().changelist_view(request, extra_context)  # type: ignore[misc]
        return response


class ReadOnly:
    """Nobody adds, changes or deletes; who may view, views."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(ReadOnly, OnlyItsFilters, admin.ModelAdmin):  # type: ignore[type-arg]
    """A list that counts and sorts only what an index has, and a page for each row."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a count of the whole table for each value of a filter
    sortable_by = ()
    list_per_page = 50

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Where the jobs are written, not a replica that lags behind.
        return super().get_queryset(request).using(default_database())
