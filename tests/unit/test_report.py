from __future__ import annotations

from django_reliable_jobs.management.jobs.report import printable, table


def test_a_table_puts_numbers_to_the_right_and_cuts_the_beginning_of_one_column() -> None:
    rows = [[1, "a.very.long.name.of_a_task", None], [1000, "short", "x"]]
    assert table(["ID", "TASK", "NOTE"], rows, width=24, cut="TASK") == [
        "  ID  TASK          NOTE",
        "   1  …e.of_a_task  -",
        "1000  short         x",
    ]


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert printable("a\x1b[31m\n\tü漢\u202e\x00") == r"a\x1b[31m\n\tü漢\u202e\x00"
