from __future__ import annotations

import pytest

from django_reliable_jobs.exceptions import HistoryMismatch, InvalidStep
from django_reliable_jobs.replay import Replay, Stored, name_of


def stored(name: str, kind: str = "step", function: str | None = "shop:charge") -> Stored:
    return Stored(name, kind, "done", "1", function, 1, None, None, False)


def test_what_is_stored_is_found_in_order_and_what_follows_is_new() -> None:
    replay = Replay("job 1", [stored("charge"), stored("nap", "sleep", None)])
    assert replay.ask("charge", "step", "shop:charge").stored == stored("charge")
    assert replay.leftover == ["nap"]
    assert replay.ask("nap", "sleep").stored == stored("nap", "sleep", None)
    assert replay.ask("ship", "step", "shop:ship") == ("ship", None)
    assert replay.leftover == []


def test_a_name_that_is_used_again_is_numbered() -> None:
    replay = Replay("job 1", [])
    names = [replay.ask("mail", "step", "shop:mail").name for _ in range(3)]
    assert names == ["mail", "mail #2", "mail #3"]


def test_numbering_passes_over_a_name_that_was_taken() -> None:
    replay = Replay("job 1", [])
    names = [replay.ask(name, "step", "shop:mail").name for name in ("mail #2", "mail", "mail")]
    assert names == ["mail #2", "mail", "mail #3"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("charge_card", "step", "shop:charge"), r"the step 'charge' is number 1 .* asks for the step 'charge_card'"),
        (("charge", "sleep", None), r"the step 'charge' is number 1 .* asks for the sleep 'charge'"),
        (("charge", "step", "shop:charge_v2"), "called charge, and the code has it call charge_v2"),
    ],
)
def test_other_steps_than_those_of_the_history_are_refused_with_a_way_out(
    asked: tuple[str, str, str | None], told: str
) -> None:
    with pytest.raises(HistoryMismatch, match=f"(?s)^job 7.*{told}.*new task name"):
        Replay("job 7", [stored("charge")]).ask(*asked)


def test_a_function_that_moved_to_another_module_is_the_same() -> None:
    assert Replay("job 1", [stored("charge")]).ask("charge", "step", "payments:charge").stored is not None


def test_a_step_put_before_others_is_refused() -> None:
    replay = Replay("job 1", [stored("charge")])
    with pytest.raises(HistoryMismatch, match="asks for the step 'check'"):
        replay.ask("check", "step", "shop:check")


@pytest.mark.parametrize(
    ("kind", "function", "told"),
    [("step", "shop:other", "shop:charge before, and now for shop:other"), ("sleep", None, "now for a sleep")],
)
def test_one_name_for_two_things_is_refused(kind: str, function: str | None, told: str) -> None:
    replay = Replay("job 1", [])
    replay.ask("charge", "step", "shop:charge")
    with pytest.raises(InvalidStep, match=told):
        replay.ask("charge", kind, function)


@pytest.mark.parametrize("name", ["", "x" * 246, "a\0b", "a\nb", 7, None])
def test_a_name_is_short_printable_text(name: object) -> None:
    with pytest.raises(InvalidStep, match="is named by text"):
        Replay("job 1", []).ask(name, "step", "shop:charge")  # type: ignore[arg-type]


def test_a_function_is_known_by_its_module_and_its_name() -> None:
    assert name_of(stored) == "tests.unit.test_replay:stored"
    assert name_of(Replay("", [])) == "django_reliable_jobs.replay:Replay"
