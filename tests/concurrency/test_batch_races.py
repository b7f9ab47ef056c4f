"""What others do to the rows of a batch while it reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction

from django_reliable_jobs.keyset import Rows
from tests.actors import Actor, on_stage, wait_until_blocked
from tests.items import some_items
from tests.models import Item

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def actors() -> Iterator[list[Actor]]:
    with on_stage("job", "clerk") as actors:
        yield actors


@pytest.mark.parametrize("by", ["pk", ("shelf", "place")])
def test_a_locked_row_that_leaves_the_queryset_costs_the_page_none_of_the_others(
    actors: list[Actor], by: str | tuple[str, ...]
) -> None:
    job, clerk = actors
    items = sorted(some_items(9), key=lambda item: item.pk if by == "pk" else (item.shelf, item.place))
    rows = Rows(Item.objects.filter(touched=0).select_for_update(), by=by, using="default")
    until = rows.last_key()
    assert until is not None

    def page() -> list[Item]:
        with transaction.atomic():
            return rows.page(None, until, 4)

    clerk.begins()
    clerk.does(Item.objects.filter(pk=items[1].pk).update, touched=1)
    clerk.does(Item.objects.filter(pk=items[2].pk).delete)
    read = job.starts(page)
    wait_until_blocked(job)
    clerk.commits()
    assert read.result(timeout=60) == [items[0], *items[3:6]], "a page that is not full would be taken for the last"
