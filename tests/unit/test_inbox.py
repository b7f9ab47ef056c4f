from __future__ import annotations

import signal
import threading
import time

from django_reliable_jobs.processes.inbox import Inbox


def test_messages_come_in_the_order_in_which_they_were_left() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(3):
        inbox.put(number)
    assert inbox.take(timeout=0) == [0, 1, 2]
    assert inbox.take(timeout=0) == []


def test_the_reader_wakes_when_there_is_enough_and_no_sooner() -> None:
    inbox: Inbox[int] = Inbox()
    counts: list[int] = []

    def write() -> None:
        for number in range(3):
            inbox.put(number)

    writer = threading.Timer(0.05, write)
    writer.start()
    counts.append(len(inbox.take(timeout=30, enough=3)))
    writer.join()
    assert counts == [3]


def test_an_urgent_message_wakes_the_reader_before_there_is_enough() -> None:
    inbox: Inbox[str] = Inbox()
    writer = threading.Timer(0.05, inbox.put_urgent, ["now"])
    writer.start()
    assert inbox.take(timeout=30, enough=100) == ["now"]
    writer.join()


def test_an_urgent_message_that_came_before_the_wait_ends_it_at_once() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put_urgent("before")
    began = time.monotonic()
    assert inbox.take(timeout=30, enough=100) == ["before"]
    assert time.monotonic() - began < 10


def test_a_wait_in_vain_ends_with_what_there_is() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put("one")
    assert inbox.take(timeout=0.01, enough=2) == ["one"]


def test_a_bell_that_was_rung_for_what_is_taken_wakes_nobody_later() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put_urgent("first")
    assert inbox.take(timeout=0) == ["first"]
    began = time.monotonic()
    assert inbox.take(timeout=0.05) == []
    assert time.monotonic() - began >= 0.05


def test_a_signal_handler_may_write_while_the_reader_waits() -> None:
    inbox: Inbox[str] = Inbox()
    before = signal.signal(signal.SIGALRM, lambda *_: inbox.put_urgent("signal"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert inbox.take(timeout=30, enough=10) == ["signal"]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_nothing_is_lost_between_many_writers_and_a_reader_who_waits_for_many() -> None:
    inbox: Inbox[int] = Inbox()
    writers = [threading.Thread(target=lambda: [inbox.put(1) for _ in range(5_000)]) for _ in range(4)]
    for each in writers:
        each.start()
    total = 0
    while total < 20_000:
        came = inbox.take(timeout=30, enough=min(500, 20_000 - total))
        assert came, "the reader was not woken although there was enough"
        total += len(came)
    assert total == 20_000
