"""One run: start everything, be violent, stop the violence, let the fleet drain, audit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psycopg

from testproject.chaos import audit
from testproject.chaos.audit import Finding
from testproject.chaos.fleet import CHECKOUT, Fleet, python
from testproject.chaos.monkey import Act, Monkey
from testproject.chaos.posts import SHUTDOWN_SECONDS, find_faketime, plan_posts
from testproject.chaos.proxy import Proxy
from testproject.chaos.server import ChaosServer
from testproject.chaos.work import KINDS

DRAIN_SECONDS = 240.0  # a job that lost four workers in a row waits for two minutes before its fifth
TURN_SECONDS = 0.05

LIVE = "SELECT count(*) FROM django_reliable_jobs_job WHERE status IN ('SCHEDULED', 'READY', 'RUNNING', 'WAITING')"
SLOTS = "SELECT count(*) FROM django_reliable_jobs_slot WHERE job_id IS NOT NULL"
LEAST_MINUTES_OF_SLOTS = 0.5  # in less, the violence may leave no scheduler the time to lead
REQUESTS = "SELECT count(*) FROM django_reliable_jobs_cancelrequest"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run is made with."""

    minutes: float
    workers: int
    producers: int
    rate: float  # transactions a second
    seed: int
    lease: float
    pause: float  # between two acts of violence, on average


@dataclass
class Result:
    """What a run did and found."""

    options: Options
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    act_counts: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    transactions: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None  # left for inspection


class Run:
    """Owns everything that a run starts. `execute` cleans up, but for the database if something was found."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.result = Result(options)
        self._options = options
        self._say = say
        self._dice = Random(options.seed)  # noqa: S311 - to be repeated, not to be secret
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._server = ChaosServer(self._folder)
        self._proxy = Proxy(self._server.port)
        self._fleet = Fleet([], self._folder)

    def execute(self) -> Result:
        """Do the run."""
        try:
            self._timed("set up", self._set_up)
            self._timed("violence", self._be_violent)
            self._timed("drain", self._drain)
            self._timed("stop", self._dismiss_workers)
            self._timed("audit", self._audit)
        except BaseException:
            self.result.findings.append(Finding("the run", "it was not carried through"))
            raise
        finally:
            self._clean_up()
        return self.result

    def _timed(self, name: str, step: Callable[[], None]) -> None:
        self._say(f"{name} ...")
        began = time.monotonic()
        step()
        self.result.seconds[name] = round(time.monotonic() - began, 1)

    def _set_up(self) -> None:
        options = self._options
        self._server.create()
        environment = {
            **os.environ,
            "DATABASE_URL": self._server.url(),
            "DJANGO_SETTINGS_MODULE": "testproject.chaos.settings",
        }
        subprocess.run(python("manage.py", "migrate", "-v0"), check=True, cwd=CHECKOUT, env=environment)
        posts = plan_posts(
            self._server,
            self._proxy,
            workers=options.workers,
            producers=options.producers,
            rate=options.rate,
            lease=options.lease,
            dice=self._dice,
        )
        if find_faketime() is None:
            self.result.notes.append("libfaketime is not installed (apt-get install faketime): no clock was skewed")
        self._fleet = Fleet(posts, self._folder)
        self._fleet.start()

    def _be_violent(self) -> None:
        monkey = Monkey(
            dice=self._dice,
            server=self._server,
            proxy=self._proxy,
            fleet=self._fleet,
            lease=self._options.lease,
            pause=self._options.pause,
        )
        deadline = time.monotonic() + self._options.minutes * 60
        while time.monotonic() < deadline:
            monkey.turn()
            self._fleet.tend()
            time.sleep(TURN_SECONDS)
        monkey.calm()
        self.result.acts = monkey.acts
        self.result.act_counts = monkey.counts

    def _drain(self) -> None:
        """The fleet goes on, whole and undisturbed, until nothing is left to do."""
        self._fleet.dismiss(self._fleet.producers, patience=30)
        deadline = time.monotonic() + DRAIN_SECONDS
        with self._server.connect() as connection:
            while _count(connection, LIVE) or _count(connection, REQUESTS):
                if time.monotonic() > deadline:
                    self._find("the run", f"the fleet did not drain within {DRAIN_SECONDS:.0f} s")
                    return
                self._fleet.tend()
                time.sleep(0.2)

    def _dismiss_workers(self) -> None:
        self._fleet.tend()
        self._fleet.dismiss(self._fleet.workers, patience=SHUTDOWN_SECONDS + 15)
        with self._server.connect() as connection:
            left = connection.execute("SELECT id, host, pid, lost_at FROM django_reliable_jobs_worker").fetchall()
        if left:
            self._find("the fleet", "the list of workers has entries without a process", detail=str(left))

    def _audit(self) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            self.result.findings += audit.audit(cursor, KINDS)
            self.result.jobs = audit.count_jobs(cursor)
            self.result.attempts = audit.count_attempts(cursor)
            if not _count(connection, SLOTS) and self._options.minutes >= LEAST_MINUTES_OF_SLOTS:
                self._find("schedules", "no scheduler made a job")
        for stray in self._fleet.strays:
            self._find("the fleet", "a process was left over", detail=stray)
        for ended in self._fleet.exits:
            self.result.exits[f"{ended.post.rpartition('-')[0]}: {ended.code}"] += 1
            if not ended.expected:
                detail = f"{ended.post} ended with {ended.code}; see {ended.log}"
                self._find("the fleet", "a process ended that nobody had ended", detail=detail)
            if not ended.post.startswith("worker"):
                self.result.transactions += _counts_of_producer(ended.log)

    def _find(self, kind: str, sentence: str, detail: str = "") -> None:
        self.result.findings.append(Finding(kind, sentence, detail=detail))

    def _clean_up(self) -> None:
        self._fleet.kill_all()
        self._proxy.close()
        self._server.stop()
        if self.result.findings:
            self.result.folder = self._folder
        else:
            shutil.rmtree(self._folder)


def _count(connection: psycopg.Connection, statement: str) -> int:
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0


def _counts_of_producer(log: Path) -> Counter[str]:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("counts: ")]
    pairs = (pair.split("=") for pair in lines[-1].removeprefix("counts: ").split(";") if "=" in pair) if lines else ()
    return Counter({name: int(count) for name, count in pairs})
