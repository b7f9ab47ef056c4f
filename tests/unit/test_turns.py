"""Whose turn it is among the lines of limited jobs."""

from __future__ import annotations

from typing import Any

from django_reliable_jobs.engine.claim import Head
from django_reliable_jobs.engine.lines import Finding, Line
from django_reliable_jobs.processes.queues import QueueOrder
from django_reliable_jobs.processes.turns import Turns


class Claimed:
    """As much of a claimed job as a turn needs."""

    def __init__(self, priority: int) -> None:
        self.priority = priority


def line(text: str, priority: int = 0, queue_name: str = "default") -> Line:
    return Line(queue_name, text, text, None, None, False, priority, 1, 0.0, False)


def head(queue_name: str = "default", priority: int = 0) -> Head:
    return Head(queue_name, priority, 1, "-infinity", 0.0, False, False)


def finding(*lines: Line, last: dict[str, str] | None = None) -> Finding:
    return Finding(list(lines), None, last or {}, False)


def had_turn(*lines: Line) -> Any:
    return [(each, Claimed(each.priority)) for each in lines]


def texts(lines: list[Line]) -> list[str]:
    return [each.text for each in lines]


A, B, C = line("a"), line("b"), line("c")


def test_the_line_behind_the_one_that_had_the_last_turn_is_next() -> None:
    turns = Turns(QueueOrder())
    assert texts(turns.in_order([A, B, C], [])) == ["a", "b", "c"]
    turns.move({"default": ""}, finding(A, B, C), had_turn(A))
    assert texts(turns.in_order([A, B, C], [])) == ["b", "c", "a"]
    turns.move({"default": ""}, finding(A, B, C), had_turn(B, C))
    assert texts(turns.in_order([A, B, C], [])) == ["a", "b", "c"]


def test_a_line_that_goes_first_by_priority_takes_nobodys_turn() -> None:
    turns = Turns(QueueOrder())
    high = line("x", 5)
    assert texts(turns.in_order([A, B, C, high], [])) == ["x", "a", "b", "c"]
    turns.move({"default": ""}, finding(A, B, C, high), had_turn(high, A))
    assert texts(turns.in_order([A, B, C], [])) == ["b", "c", "a"]


def test_a_line_with_a_lower_priority_than_a_ready_ordinary_job_of_its_queue_waits() -> None:
    turns = Turns(QueueOrder())
    lines = [A, line("high", 3), line("other", -5, "exports")]
    assert texts(turns.in_order(lines, [head(priority=1), head(priority=-1)])) == ["high", "other"]
    assert texts(turns.in_order([line("same", 1)], [head(priority=1)])) == ["same"]


def test_queues_take_turns() -> None:
    turns, seen = Turns(QueueOrder()), []
    for _ in range(4):
        turns.begin()
        seen.append(turns.queues(["a", "b", "c"], [])[0])
    assert seen == ["b", "c", "a", "b"]
    assert turns.queues([], []) == []


STRICT = QueueOrder({"first": None, "second": None, "third": None})


def test_strictly_in_order_no_queue_behind_a_ready_ordinary_job_is_looked_at() -> None:
    turns = Turns(STRICT)
    assert turns.queues(["third", "first", "second"], []) == ["first", "second", "third"]
    assert turns.queues(["third", "first", "second"], [head("second")]) == ["first", "second"]
    assert turns.queues(["third"], [head("second")]) == []


def test_strictly_in_order_only_ordinary_jobs_that_are_not_behind_are_rivals() -> None:
    heads = [head("first"), head("third")]
    assert Turns(STRICT).rivals(["second"], heads) == heads[:1]
    assert Turns(STRICT).rivals(["first"], heads) == heads[:1]
    assert Turns(QueueOrder()).rivals(["second"], heads) == heads


def test_strictly_in_order_only_the_first_queues_lines_are_claimed_from() -> None:
    lines = [line("b", 0, "second"), line("a", 9, "third")]
    assert texts(Turns(STRICT).in_order(lines, [])) == ["b"]


def test_a_scan_that_was_cut_goes_on_behind_the_last_turn_or_the_last_line_seen() -> None:
    turns = Turns(QueueOrder())
    assert turns.move({"default": ""}, finding(A, B, last={"default": "b"}), had_turn(A))
    assert turns.cursors(["default"]) == {"default": "a"}
    assert not turns.move({"default": "a"}, finding(last={"default": "z"}), [])
    assert turns.cursors(["default"]) == {"default": "z"}
    assert not turns.move({"default": "z"}, finding(), [])
    assert turns.cursors(["default", "new"]) == {"default": "", "new": ""}
