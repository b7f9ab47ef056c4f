"""The reference pages say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from django_reliable_jobs.conf import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_stands_in_the_reference_with_its_default() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert list(rows) == [each.name for each in fields(Settings)]
    for each in fields(Settings):
        if isinstance(each.default, int | float):
            assert rows[each.name].split("|")[2].strip() == str(each.default)


def test_every_link_between_pages_leads_to_one() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    links = [
        (page, link.partition("#")[0])
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
        if not link.startswith(("http:", "https:", "#"))
    ]
    assert len(links) > 20
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_option_of_the_tasks_backend_stands_on_its_page() -> None:
    pytest.importorskip("django_reliable_jobs.tasks_framework", exc_type=ImportError)
    from django_reliable_jobs.backend import policies

    page = (DOCS / "how-to" / "django-tasks.md").read_text()
    assert [name for name in (*policies.FOR_ONE, *policies.OTHER_OPTIONS) if f"`{name}`" not in page] == []
