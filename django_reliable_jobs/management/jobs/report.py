"""What a verb answers, and how it is laid out as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

SHORTEST_CELL = 12


@dataclass
class Report:
    """One answer in two forms. `failure` says what was asked for and not done; the command then exits with
    `exit_code`.
    """

    data: dict[str, Any]  # for --json
    lines: list[str] = field(default_factory=list)
    failure: str | None = None
    exit_code: int = 1

    def as_json(self) -> str:
        return json.dumps(self.data, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None, cut: str) -> list[str]:
    """Lay out rows under headings, numbers to the right. Wider than `width`, the column `cut` loses its beginning."""
    texts = [[printable("-" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    place = headings.index(cut)
    if width is not None:
        others = sum(widths) - widths[place] + 2 * (len(widths) - 1)
        widths[place] = max(min(widths[place], width - others), SHORTEST_CELL)
    is_number = [all(isinstance(row[n], int | None) for row in rows) for n in range(len(headings))]
    lines = []
    for line in ([*headings], *texts):
        line[place] = _cut_beginning(line[place], widths[place])
        cells = [
            text.rjust(size) if right else text.ljust(size)
            for text, size, right in zip(line, widths, is_number, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def printable(text: str) -> str:
    """Return text on one line, without what a terminal would obey instead of show."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def printable_lines(text: str) -> list[str]:
    """Return each line of a text as `printable` has it; tabs become spaces."""
    return [printable(line) for line in text.expandtabs(4).splitlines()]


def _cut_beginning(text: str, size: int) -> str:
    # The end of a dotted name tells more than its beginning.
    return text if len(text) <= size else f"…{text[len(text) - size + 1 :]}"
