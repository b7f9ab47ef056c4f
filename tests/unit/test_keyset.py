"""Which querysets and keys batches can go through, and which are refused with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber
from django.test.utils import CaptureQueriesContext

from django_reliable_jobs import keyset
from django_reliable_jobs.exceptions import InvalidBatches
from django_reliable_jobs.keyset import Rows
from django_reliable_jobs.models import MinuteCount
from tests.items import some_items
from tests.models import Item, Part, SpecialItem

pytestmark = pytest.mark.django_db


def pages(source: Any, by: Any = "pk", size: int = 3) -> list[Any]:
    """Go through all rows, page by page."""
    rows = Rows(source, by=by, using="default")
    until, after, seen = rows.last_key(), None, []
    while until is not None and after != until:
        page = rows.page(after, until, size)
        seen += page
        after = rows.key_of(page[-1]) if len(page) == size else until
    return seen


@pytest.mark.parametrize("by", ["pk", "id", "code", "made_at", "identifier", ("shelf", "place"), ("place", "pk")])
def test_each_row_comes_once_in_the_order_of_the_key(by: Any) -> None:
    some_items(20)
    names = [by] if isinstance(by, str) else by
    assert pages(Item.objects.all(), by) == list(Item.objects.order_by(*names))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 7])
def test_the_number_of_rows_may_be_any(count: int) -> None:
    some_items(count)
    assert len(pages(Item.objects.all())) == count


def test_a_manager_and_a_related_manager_are_their_rows() -> None:
    first, second = some_items(2)
    for number in range(5):
        Part.objects.create(item=first if number else second, name=str(number))
    assert len(pages(Item.objects)) == 2
    assert [part.name for part in pages(first.parts)] == ["1", "2", "3", "4"]


def test_a_primary_key_that_links_to_a_parent_is_a_key() -> None:
    rows = [SpecialItem.objects.create(code=str(number), place=number) for number in range(7)]
    assert pages(SpecialItem.objects.all()) == rows
    assert pages(SpecialItem.objects.all(), ("shelf", "place")) == rows


def test_a_composite_primary_key_is_a_key() -> None:
    for minute in range(2):
        for outcome in ("dead", "failed", "lost"):
            MinuteCount.objects.create(
                minute=f"2030-01-01T00:0{minute}Z", queue_name="a", task="t", outcome=outcome, count=1, seconds=0
            )
    assert pages(MinuteCount.objects.all(), size=2) == list(MinuteCount.objects.order_by("pk"))


@pytest.mark.parametrize(
    "narrow",
    [
        lambda items: items.filter(shelf=1),
        lambda items: items.exclude(place__gt=15).select_related(None),
        lambda items: items.annotate(twice=F("place") * 2).filter(twice__gt=8),
        lambda items: items.annotate(count=Count("parts")).filter(count__gt=0),
        lambda items: items.filter(parts__name__startswith="p").distinct(),
        lambda items: items.only("place"),
        lambda items: items.defer("code"),
        lambda items: items.prefetch_related("parts"),
        lambda items: items.select_for_update(),
        lambda items: items.none(),
    ],
)
def test_it_is_right_for(narrow: Callable[[Any], Any]) -> None:
    items = some_items(20)
    Part.objects.bulk_create(
        [Part(item=item, name=f"p{number}") for item in items[::2] for number in range(item.place % 3 + 1)]
    )
    queryset = narrow(Item.objects.all())
    assert pages(queryset) == list(queryset.order_by("pk"))


def test_annotations_and_prefetched_rows_are_there() -> None:
    some_items(4)
    queryset = Item.objects.annotate(twice=F("place") * 2).prefetch_related("parts")
    with CaptureQueriesContext(connection) as queries:
        found = pages(queryset, size=2)
        assert [item.twice for item in found] == [2, 4, 6, 8]
        asked = len(queries)
        assert [list(item.parts.all()) for item in found] == [[], [], [], []]
        assert len(queries) == asked


@pytest.mark.parametrize(
    ("narrow", "message"),
    [
        (lambda items: items[:10], "it is sliced.*size="),
        (lambda items: items.order_by("shelf"), "it is ordered.*by="),
        (lambda items: items.reverse(), "it is ordered.*by="),
        (lambda items: items.distinct("shelf"), "distinct\\(\\) with fields"),
        (lambda items: items.values("pk"), "values\\(\\) and values_list\\(\\) have no key"),
        (lambda items: items.values_list("pk", flat=True), "values\\(\\) and values_list\\(\\) have no key"),
        (lambda items: items.values("shelf").annotate(count=Count("pk")), "have no key"),
        (lambda items: items.union(Item.objects.all()), "union\\(\\) has no key"),
        (lambda items: items.annotate(rank=Window(RowNumber())), "a window function would see one batch"),
        (lambda items: items.intersection(Item.objects.all()), "intersection\\(\\) has no key"),
        (lambda items: items.select_for_update(skip_locked=True), "skip_locked=True would leave out each row"),
    ],
)
def test_it_refuses(narrow: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(InvalidBatches, match=f"tests.Item: this queryset can't .*{message}"):
        Rows(narrow(Item.objects.all()), by="pk", using="default")


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("shelf", r"'shelf' is not unique.*by=\('shelf', 'pk'\)"),
        (("shelf", "touched"), "is not unique"),
        ("touched", "is not unique"),
        ("price", "'price' may be NULL"),
        (("pk", "price"), "'price' may be NULL"),
        ("colour", "'colour' is no field"),
        ("-pk", "'-pk' is no field; batches go upwards"),
        ("parts__name", "'parts__name' is no field of the model itself"),
        ("parts", "'parts' has no column"),
        ((), "is not unique"),
    ],
)
def test_it_refuses_the_key(by: Any, message: str) -> None:
    with pytest.raises(InvalidBatches, match=message):
        Rows(Item.objects.all(), by=by, using="default")


def test_it_refuses_a_key_whose_values_a_checkpoint_can_not_keep() -> None:
    some_items(1)
    with pytest.raises(InvalidBatches, match=r"by='payload' has values of type .*, which a checkpoint can't keep"):
        Rows(Item.objects.all(), by="payload", using="default").last_key()


def test_it_refuses_a_deferred_key() -> None:
    some_items(1)
    with pytest.raises(InvalidBatches, match=r"the key code is deferred: add it to only\(\)"):
        pages(Item.objects.only("place"), "code")


def test_it_refuses_rows_that_a_join_gives_more_than_once() -> None:
    [item] = some_items(1)
    for _ in range(2):
        Part.objects.create(item=item)
    with pytest.raises(InvalidBatches, match=r"more than once, as a join makes it: add \.distinct\(\)"):
        pages(Item.objects.filter(parts__name=""))


def test_it_refuses_rows_of_another_database() -> None:
    with pytest.raises(
        InvalidBatches, match=r"in the database 'other', the job is in 'default'.*using\(database='other'"
    ):
        Rows(Item.objects.using("other"), by="pk", using="default")
    assert Rows(Item.objects.using("default"), by="pk", using="default")


def test_rows_that_a_router_reads_elsewhere_are_read_where_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some_items(3)
    monkeypatch.setattr("django.db.models.query.router.db_for_read", lambda *_, **__: "replica")
    assert len(pages(Item.objects.all())) == 3


def test_the_key_survives_json_to_the_microsecond() -> None:
    [item] = some_items(1)
    item.refresh_from_db()
    rows = Rows(Item.objects.all(), by=("made_at", "identifier"), using="default")
    key = rows.key_of(item)
    assert key == rows.last_key() == [item.made_at.isoformat(), str(item.identifier)]
    assert list(rows.between(None, key)) == [item]
    assert list(rows.between(key, key)) == []


def test_a_page_reads_the_index_from_where_the_last_one_ended() -> None:
    some_items(2000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tests_item")
    rows = Rows(Item.objects.all(), by=("shelf", "place"), using="default")
    until = rows.last_key()
    assert until is not None
    plan = rows.between([0, 500], until)[:10].explain()
    assert "Index Scan using tests_item_place" in plan
    assert "Index Cond: ((ROW(shelf, place) <= ROW(1, 1999)) AND (ROW(shelf, place) > ROW(0, 500)))" in plan


@pytest.mark.parametrize("nothing", [Item.objects.none, lambda: Item.objects.filter(pk__in=[])])
def test_a_queryset_that_can_have_no_rows_has_none(nothing: Callable[[], Any]) -> None:
    some_items(3)
    rows = Rows(nothing(), by="pk", using="default")
    assert (rows.last_key(), rows.count()) == (None, 0)


@pytest.mark.parametrize("by", ["pk", "id", "item_ptr", "code", ("shelf", "place")])
def test_rows_of_an_inherited_model_may_be_locked(by: Any) -> None:
    for number in range(5):
        SpecialItem.objects.create(code=str(number), place=number)
    assert len(pages(SpecialItem.objects.select_for_update(), by, size=2)) == 5


@pytest.mark.parametrize("by", [("item", "pk"), ("item_id", "id")])
def test_a_foreign_key_may_be_the_first_part_of_a_key(by: Any) -> None:
    items = some_items(3)
    Part.objects.bulk_create([Part(item=item, name=str(number)) for number in range(3) for item in items])
    assert pages(Part.objects.all(), by, size=2) == list(Part.objects.order_by("item_id", "pk"))


def test_few_rows_are_counted_and_very_many_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    some_items(100)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tests_item")
    rows = Rows(Item.objects.filter(place__gt=10), by="pk", using="default")
    assert rows.count() == 90
    monkeypatch.setattr(keyset, "COUNT_COST", 0)
    with CaptureQueriesContext(connection) as queries:
        assert rows.count() == pytest.approx(90, abs=15)
    assert [query["sql"].split()[0] for query in queries] == ["EXPLAIN"]
    monkeypatch.setattr(keyset, "MOST", 7)
    assert rows.count() == 7, "what is too large for its column would keep the progress of all jobs from being written"
