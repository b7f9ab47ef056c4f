"""The violence: a seeded sequence of acts, each undone after its time by an agenda."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import psutil

from testproject.chaos.fleet import Fleet, Member
from testproject.chaos.proxy import Proxy, Route
from testproject.chaos.server import ChaosServer
from testproject.chaos.witness import Busy, Witness

LONGEST_REPLACEMENT = 4.0  # leases until a process that was stopped is woken, replaced or not


@dataclass
class Entry:
    """Something to be done at a moment, or sooner if `when` comes true."""

    at: float  # of the monotonic clock
    do: Callable[[], object]
    when: Callable[[], bool] = lambda: False


class Agenda:
    """What is to be done later; whoever calms the monkey does all of it at once."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        self._entries.append(Entry(time.monotonic() + seconds, do))

    def when(self, condition: Callable[[], bool], do: Callable[[], object], *, at_last: float) -> None:
        """Do it when the condition holds, or after `at_last` seconds all the same."""
        self._entries.append(Entry(time.monotonic() + at_last, do, condition))

    def do_what_is_due(self) -> None:
        now = time.monotonic()
        due = [entry for entry in self._entries if entry.at <= now or entry.when()]
        self._entries = [entry for entry in self._entries if entry not in due]
        for entry in due:
            entry.do()

    def do_all(self) -> None:
        entries, self._entries = self._entries, []
        for entry in entries:
            entry.do()


@dataclass
class Act:
    """One thing that the monkey did."""

    at: float  # seconds since the begin
    name: str
    target: str


class Monkey:
    """Chooses an act by its weight, its target and its length by the dice, and goes on after a pause."""

    def __init__(
        self, *, dice: Random, server: ChaosServer, proxy: Proxy, fleet: Fleet, lease: float, pause: float
    ) -> None:
        self.acts: list[Act] = []
        self._dice = dice
        self._server = server
        self._proxy = proxy
        self._fleet = fleet
        self._lease = lease
        self._pause = pause
        self._agenda = Agenda()
        self._witness = Witness(server)
        self._began_at = time.monotonic()
        self._act_at = self._began_at + pause
        self._choices: dict[str, tuple[int, Callable[[], str | None]]] = {
            "kill -9 a worker process": (6, self._kill_worker),
            "kill -9 a producer": (2, self._kill_producer),
            "stop a process for longer than its lease": (3, self._stop_long),
            "stop a process until its job runs elsewhere": (6, self._stop_until_replaced),
            "freeze the network of a process until its job runs elsewhere": (6, self._freeze_until_replaced),
            "stop a process for a moment": (3, self._stop_briefly),
            "terminate backends": (5, self._terminate_backends),
            "crash the server": (2, self._crash_server),
            "make the server read-only": (2, self._make_read_only),
            "cut one process off": (4, self._cut_one),
            "cut everybody off": (2, self._cut_all),
            "freeze the network of one process": (2, self._freeze_one),
            "swallow answers, then cut": (5, self._lose_answers),
            "slow the network down": (2, self._slow_down),
            "SIGTERM a worker": (4, self._terminate_worker),
            "SIGTERM a worker twice": (2, self._hurry_worker),
        }

    @property
    def counts(self) -> dict[str, int]:
        """How often each act was done; those that were not are named too."""
        done = Counter(act.name for act in self.acts)
        return {name: done[name] for name in self._choices}

    def turn(self) -> None:
        """Undo what is due, and act if it is time to."""
        self._agenda.do_what_is_due()
        if time.monotonic() < self._act_at:
            return
        [name] = self._dice.choices(list(self._choices), [weight for weight, _ in self._choices.values()])
        target = self._choices[name][1]()
        if target is not None:
            self.acts.append(Act(round(time.monotonic() - self._began_at, 2), name, target))
        self._act_at = time.monotonic() + self._dice.expovariate(1 / self._pause)

    def calm(self) -> None:
        """Undo everything."""
        self._agenda.do_all()
        self._witness.close()
        self._proxy.heal()
        self._server.become_read_only(False)

    # --- processes

    def _kill_worker(self) -> str | None:
        return self._signal(self._pick(self._fleet.workers), signal.SIGKILL)

    def _kill_producer(self) -> str | None:
        return self._signal(self._pick(self._fleet.producers), signal.SIGKILL)

    def _stop_long(self) -> str | None:
        return self._stop(self._dice.uniform(1.3, 2.5) * self._lease)

    def _stop_briefly(self) -> str | None:
        return self._stop(self._dice.uniform(0.1, 0.4) * self._lease)

    def _stop(self, seconds: float) -> str | None:
        picked = self._pick(self._fleet.workers)
        target = self._signal(picked, signal.SIGSTOP)
        if picked is not None and target is not None:
            self._agenda.after(seconds, lambda: self._signal(picked, signal.SIGCONT))
        return target and f"{target} for {seconds:.1f} s"

    def _stop_until_replaced(self) -> str | None:
        found = self._pick_busy()
        if found is None or self._signal(found[:2], signal.SIGSTOP) is None:
            return None
        member, process, busy = found
        self._wait_until_replaced(busy, lambda: self._signal((member, process), signal.SIGCONT))
        return f"{member.post.name}, process {process.pid}"

    def _freeze_until_replaced(self) -> str | None:
        found = self._pick_busy()
        if found is None:
            return None
        member, _, busy = found
        member.post.route.freeze()
        self._wait_until_replaced(busy, member.post.route.heal)
        return member.post.name

    def _wait_until_replaced(self, busy: Busy, do: Callable[[], object]) -> None:
        longest = LONGEST_REPLACEMENT * self._lease
        self._agenda.when(lambda: self._witness.has_been_replaced(busy), do, at_last=longest)

    def _pick_busy(self) -> tuple[Member, psutil.Process, Busy] | None:
        """Choose a process that is in the middle of a job whose effects must not be doubled."""
        members = {process.pid: (member, process) for member in self._fleet.workers for process in member.processes()}
        found = [busy for busy in self._witness.find_busy() if busy.pid in members]
        if not found:
            return None
        busy = self._dice.choice(found)
        return (*members[busy.pid], busy)

    def _terminate_worker(self) -> str | None:
        member = self._dice.choice(self._fleet.workers)
        member.terminate()
        return member.post.name

    def _hurry_worker(self) -> str | None:
        member = self._dice.choice(self._fleet.workers)
        member.terminate()
        self._agenda.after(self._dice.uniform(0.1, 1), member.terminate)
        return member.post.name

    def _pick(self, members: Sequence[Member]) -> tuple[Member, psutil.Process] | None:
        """Choose a post, then one of its processes."""
        member = self._dice.choice(members)
        processes = member.processes()
        return (member, processes[int(self._dice.random() * len(processes))]) if processes else None

    def _signal(self, picked: tuple[Member, psutil.Process] | None, number: signal.Signals) -> str | None:
        if picked is None:
            return None
        member, process = picked
        if number == signal.SIGKILL and process.pid == member.pid:
            member.may_end = True
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return None
        return f"{member.post.name}, process {process.pid}"

    # --- the server

    def _terminate_backends(self) -> str | None:
        share = self._dice.choice([0.2, 0.5, 1.0])
        return f"{self._server.terminate_backends(share)} backends"

    def _crash_server(self) -> str | None:
        self._server.crash()
        return "the server"

    def _make_read_only(self) -> str | None:
        seconds = self._dice.uniform(0.5, 1.5) * self._lease
        self._server.become_read_only(True)
        self._agenda.after(seconds, lambda: self._server.become_read_only(False))
        return f"the server for {seconds:.1f} s"

    # --- the network

    def _cut_one(self) -> str | None:
        return self._disturb([self._dice.choice(self._proxy.routes)], Route.cut, self._dice.uniform(0.1, 2))

    def _cut_all(self) -> str | None:
        return self._disturb(self._proxy.routes, Route.cut, self._dice.uniform(0.1, 1.5))

    def _freeze_one(self) -> str | None:
        reset = self._dice.random() < 0.5
        return self._disturb([self._dice.choice(self._proxy.routes)], Route.freeze, self._dice.uniform(0.3, 2.5), reset)

    def _slow_down(self) -> str | None:
        latency = self._dice.uniform(0.01, 0.2)
        return self._disturb(self._proxy.routes, lambda route: route.slow_down(latency), self._dice.uniform(0.5, 2))

    def _lose_answers(self) -> str | None:
        routes = self._proxy.routes if self._dice.random() < 0.3 else [self._dice.choice(self._proxy.routes)]
        return self._disturb(routes, Route.deafen, self._dice.uniform(0.02, 0.2), reset=True)

    def _disturb(
        self, routes: Sequence[Route], disturb: Callable[[Route], None], leases: float, reset: bool = False
    ) -> str:
        for route in routes:
            disturb(route)
            self._agenda.after(leases * self._lease, lambda route=route: route.heal(reset=reset))
        names = routes[0].name if len(routes) == 1 else "everybody"
        return f"{names} for {leases * self._lease:.1f} s"
