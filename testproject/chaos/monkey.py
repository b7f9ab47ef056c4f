"""The violence: a seeded sequence of acts, each undone after its time by an agenda."""

from __future__ import annotations

import heapq
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


class Agenda:
    """What is to be done later; whoever calms the monkey does all of it at once."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._entries, (time.monotonic() + seconds, self._count, action))

    def do_what_is_due(self) -> None:
        while self._entries and self._entries[0][0] <= time.monotonic():
            heapq.heappop(self._entries)[2]()

    def do_all(self) -> None:
        while self._entries:
            heapq.heappop(self._entries)[2]()


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
        self._began_at = time.monotonic()
        self._act_at = self._began_at + pause
        self._choices: dict[str, tuple[int, Callable[[], str | None]]] = {
            "kill -9 a worker process": (6, self._kill_worker),
            "kill -9 a producer": (2, self._kill_producer),
            "stop a process for longer than its lease": (5, self._stop_long),
            "stop a process for a moment": (3, self._stop_briefly),
            "terminate backends": (5, self._terminate_backends),
            "crash the server": (2, self._crash_server),
            "make the server read-only": (2, self._make_read_only),
            "cut one process off": (4, self._cut_one),
            "cut everybody off": (2, self._cut_all),
            "freeze the network of one process": (4, self._freeze_one),
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
