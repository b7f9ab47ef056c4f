"""Where contestants run: a private server, a database for each run, and worker processes of each contestant."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from testproject.benchmarks import usage
from testproject.benchmarks.contestants import OURS, Contestant
from testproject.benchmarks.environments import Environments
from testproject.benchmarks.peers import marks
from testproject.benchmarks.server import PostgresServer, RedisServer
from testproject.benchmarks.usage import Usage

CHECKOUT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 10


class Failed(Exception):
    """A contestant did not do what it was asked; the message holds what it printed."""


class Arena:
    """The servers of one invocation of the command, gone with everything in them at its end."""

    def __init__(self, home: Path, programs: Path | None = None) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self._core: int | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="run-", dir=home))
        self._folder.chmod(0o755)  # the server may run as a user of its own
        self.environments = Environments(home / "peers")
        self.server = PostgresServer(self._folder, programs)
        self._redis: RedisServer | None = None
        self._made: set[str] = set()

    def __enter__(self) -> Arena:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        if self._redis is not None:
            self._redis.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def keep_to(self, core: int | None) -> None:
        """Let the server, and the workers that start from now on, run on this core only; None: on all."""
        self._core = core
        cores = list(range(psutil.cpu_count() or 1)) if core is None else [core]
        for process in (self.server.process, *self.server.process.children()):
            process.cpu_affinity(cores)

    def call(
        self, contestant: Contestant, database: str, verb: str, *given: float, marks_in: Path | None = None
    ) -> Any:
        """Have a contestant's driver do something, and return its answer."""
        command = [*self._driver(contestant), verb, *map(json.dumps, given)]
        environment = self._environment(contestant, database, marks_in or self._folder)
        result = subprocess.run(command, check=False, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
        if result.returncode:
            raise Failed(f"{contestant.name} {verb} ended with {result.returncode}:\n{result.stderr[-3000:]}")
        return json.loads(result.stdout.rstrip().split("\n")[-1])

    def tables(self, contestant: Contestant) -> str:
        """Return the name of a database with the contestant's empty tables."""
        owner = OURS if contestant.tables else contestant
        name = f"{owner.driver}_empty"
        if contestant.needs_redis:
            return "postgres"
        if name not in self._made:
            self.server.create(name)
            self.call(owner, name, "setup")
            self._made.add(name)
        return name

    def prepared(self, contestant: Contestant, label: str, fill: Callable[[str], None]) -> str:
        """Return the name of a database that `fill` was called for, once per label; vacuumed: all runs start even."""
        name = f"{contestant.driver}_{label}"
        if name not in self._made:
            self.server.create(name, self.tables(contestant))
            fill(name)
            self.server.execute(name, "VACUUM ANALYZE")
            self._made.add(name)
        return name

    def forget(self, database: str) -> None:
        """Drop a prepared database."""
        self._made.discard(database)
        self.server.drop(database)

    @contextlib.contextmanager
    def worker(
        self, contestant: Contestant, database: str, *, processes: int = 1, options: Sequence[str] = ()
    ) -> Iterator[RunningWorker]:
        """Run a contestant's worker beside a block; `options` are more of `manage.py runworker`, for ours."""
        folder = Path(tempfile.mkdtemp(prefix="marks-", dir=self._folder))
        environment = self._environment(contestant, database, folder)
        if contestant.is_ours:
            shape = ["--threads", str(contestant.concurrency), "--processes", str(processes)]
            commands = [[sys.executable, "manage.py", "runworker", *shape, *options]]
        else:
            commands = [[*self._driver(contestant), "worker", str(contestant.concurrency)]] * processes
        others = [self._redis.process] if self._redis and contestant.needs_redis else []
        worker = RunningWorker(commands, environment, folder, self.server, others)
        if self._core is not None:
            worker.keep_to([self._core])
        try:
            yield worker
        finally:
            worker.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _driver(self, contestant: Contestant) -> list[str]:
        module = f"testproject.benchmarks.peers.{contestant.driver}"
        return [str(self.environments.python_of(contestant)), "-m", module]

    def _environment(self, contestant: Contestant, database: str, folder: Path) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "TESTS_"))}
        environment |= {
            "DATABASE_URL": self.server.url(database),
            "BENCHMARK_MARKS": str(folder),
            "PYTHONWARNINGS": "ignore",
            **contestant.environment,
        }
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        if contestant.is_ours:
            environment["DJANGO_SETTINGS_MODULE"] = "testproject.benchmarks.settings"
        if contestant.needs_redis:
            if self._redis is None:
                self._redis = RedisServer(self._folder)
            environment["BENCHMARK_REDIS"] = self._redis.url
        return environment


class RunningWorker:
    """The worker processes of one run, and what their jobs left in `marks`."""

    def __init__(
        self,
        commands: list[list[str]],
        environment: dict[str, str],
        folder: Path,
        server: PostgresServer,
        others: list[psutil.Process],
    ) -> None:
        self.marks = folder
        self.log = folder / "log"
        self._server, self._others = server, others
        self.started_at = time.time()
        with self.log.open("wb") as log:
            self._processes = [
                psutil.Popen(each, cwd=CHECKOUT, env=environment, stdout=log, stderr=log) for each in commands
            ]

    @property
    def family(self) -> list[psutil.Process]:
        """The processes and their children."""
        return [each for process in self._processes for each in (process, *process.children(recursive=True))]

    def keep_to(self, cores: list[int]) -> None:
        """Let the processes run on these cores only; what they start inherits it."""
        for process in self._processes:
            process.cpu_affinity(cores)

    def usage(self) -> Usage:
        """Return the counters of this moment."""
        return usage.now(self.family, self._server, self._others)

    def count(self) -> tuple[int, float | None]:
        """Return how many jobs ran, and when the first started."""
        return marks.count(self.marks)

    def wait_until(self, condition: Callable[[], object], *, seconds: float, pause: float = 0.01) -> bool:
        """Return whether the condition came true in time; raise if the worker ends by itself."""
        deadline = time.monotonic() + seconds
        while not condition():
            if any(each.poll() is not None for each in self._processes):
                raise Failed(f"the worker ended by itself:\n{self.log.read_text(errors='replace')[-3000:]}")
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
        return True

    def stop(self) -> None:
        """Ask the processes to end, and see that they and their children do."""
        family = self.family
        for each in self._processes:
            each.terminate()
        _, alive = psutil.wait_procs(self._processes, timeout=STOP_SECONDS)
        for each in [*alive, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=STOP_SECONDS)
