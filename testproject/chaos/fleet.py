"""The processes of a run: workers and producers, each at a post that is filled again when its process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from testproject.chaos.proxy import Route

CHECKOUT = Path(__file__).resolve().parents[2]

# A worker that asks for a fresh process, and one that was killed: by the monkey, or by a job of its own.
EXPECTED_CODES = (75, -signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Post:
    """A place in the fleet: what runs there, and how it reaches the server."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    route: Route
    is_worker: bool = True


@dataclass
class Exit:
    """How a process ended. `expected`: as it was asked to, or in a way that is part of the work."""

    post: str
    code: int
    expected: bool
    seconds: float  # from the first SIGTERM; 0 without one
    log: Path


class Member:
    """The process at a post, and what it starts itself: all are in one session of the operating system."""

    def __init__(self, post: Post, log: Path) -> None:
        self.post = post
        self.log = log
        self.asked_at: float | None = None
        self.may_end = False
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                list(post.command),
                cwd=CHECKOUT,
                env={**os.environ, **post.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of the session, the first one first."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return sorted(found, key=lambda process: process.pid != self.pid)

    def terminate(self) -> None:
        """Ask it to end."""
        self.may_end = True
        self.asked_at = self.asked_at or time.monotonic()
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first process."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill_session(self) -> None:
        """Kill whatever of it is left."""
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()

    def exit(self) -> Exit | None:
        """Return how it ended, or None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        seconds = time.monotonic() - self.asked_at if self.asked_at else 0.0
        return Exit(self.post.name, code, self.may_end or code in EXPECTED_CODES, seconds, self.log)


class Fleet:
    """Every post has a process, until the fleet is dismissed."""

    def __init__(self, posts: Sequence[Post], folder: Path) -> None:
        self.members: dict[str, Member] = {}
        self.exits: list[Exit] = []
        self.strays: list[str] = []  # what outlived the first process of its session
        self._posts = {post.name: post for post in posts}
        self._folder = folder
        self._starts = 0
        self._ended: list[tuple[float, Member]] = []

    def start(self) -> None:
        """Fill every post."""
        for name in self._posts:
            self._fill(name)

    def tend(self) -> None:
        """Take note of processes that have ended, and fill their posts again."""
        for name, member in list(self.members.items()):
            if (ended := member.exit()) is not None:
                self._take_note(member, ended)
                self._fill(name)
        self._look_for_strays(after=30)

    @property
    def workers(self) -> list[Member]:
        return [member for member in self.members.values() if member.post.is_worker]

    @property
    def producers(self) -> list[Member]:
        return [member for member in self.members.values() if not member.post.is_worker]

    def dismiss(self, members: Sequence[Member], *, patience: float) -> None:
        """Ask members to end and wait for it; their posts stay empty. Who does not end in time is killed, and noted."""
        for member in members:
            member.terminate()
        deadline = time.monotonic() + patience
        for member in members:
            while (ended := member.exit()) is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if ended is None:
                self.strays.append(
                    f"{member.post.name} did not end within {patience:.0f} s of SIGTERM; see {member.log}"
                )
                member.kill_session()
                ended = member.exit()
            if ended is not None:
                self._take_note(member, ended)
            self.members.pop(member.post.name, None)
        if not self.members:
            self._look_for_strays(after=10)

    def kill_all(self) -> None:
        """Leave nothing behind, whatever the state of the run."""
        for member in [*self.members.values(), *(member for _, member in self._ended)]:
            member.kill_session()

    def _fill(self, name: str) -> None:
        self._starts += 1
        post = self._posts[name]
        self.members[name] = Member(post, self._folder / f"{name}-{self._starts}.log")

    def _take_note(self, member: Member, ended: Exit) -> None:
        self.exits.append(ended)
        self._ended.append((time.monotonic(), member))

    def _look_for_strays(self, *, after: float) -> None:
        """Processes that a killed one started must notice its death and end by themselves."""
        waiting = []
        for ended_at, member in self._ended:
            left = member.processes()
            if left and time.monotonic() - ended_at > after:
                self.strays.append(f"{member.post.name}: {len(left)} processes outlived the one that started them")
                member.kill_session()
            elif left:
                waiting.append((ended_at, member))
        self._ended = waiting


def python(*arguments: str) -> list[str]:
    """Return a command of this Python."""
    return [sys.executable, *arguments]
