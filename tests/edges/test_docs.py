"""The reference pages say what the code says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from django_reliable_jobs.conf import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_stands_in_the_reference_with_its_default() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert list(rows) == [each.name for each in fields(Settings)]
    for each in fields(Settings):
        if isinstance(each.default, int | float):
            assert rows[each.name].split("|")[2].strip() == str(each.default)
