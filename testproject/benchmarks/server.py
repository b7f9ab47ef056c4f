"""The private servers of a run: a PostgreSQL on a folder and a port of its own with stated settings, and a Redis."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from testproject.embedded.programs import PostgresPrograms

START_SECONDS = 60
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
}


class PostgresServer:
    """A server that keeps what it commits, as a production server does. `programs`: of another PostgreSQL than ours."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.data = folder / "data"
        self.log = folder / "postgresql.log"
        self.port = free_port()
        self.data.mkdir(mode=0o700)
        self._programs = PostgresPrograms(self.data)
        if programs is not None:
            self._programs.bin_path = programs
        self._programs.give(self.data)
        self.has_statements = False

    def start(self) -> None:
        """Initialise the data and return when the server accepts connections."""
        self._programs.run(
            *("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D", str(self.data))
        )
        self.log.touch()
        self._programs.give(self.log)
        libraries = Path(self._library_folder())
        self.has_statements = (libraries / "pg_stat_statements.so").exists()
        options = {
            **SETTINGS,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "shared_preload_libraries": "pg_stat_statements" if self.has_statements else "",
        }
        given = shlex.join(f"--{name}={value}" for name, value in options.items())
        self._programs.run(*self._control("start"), "-t", str(START_SECONDS), "-l", str(self.log), "-o", given)
        if self.has_statements:
            for database in ("template1", "postgres"):
                self.execute(database, "CREATE EXTENSION pg_stat_statements")

    def stop(self) -> None:
        """Shut down, if it runs."""
        if (self.data / "postmaster.pid").exists():
            self._programs.run(*self._control("stop"), "-m", "fast")

    @property
    def process(self) -> psutil.Process:
        """The parent of all processes of the server."""
        return psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n")[0]))

    def url(self, database: str) -> str:
        """What DATABASE_URL is for a process that uses this database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Open an autocommit connection."""
        return psycopg.connect(self.url(database), autocommit=True)

    def execute(self, database: str, statement: str) -> None:
        """Run SQL on a connection of its own."""
        with self.connect(database) as connection:
            connection.execute(statement.encode())

    def value(self, database: str, query: str) -> Any:
        """Return the first column of the first row."""
        with self.connect(database) as connection:
            row = connection.execute(query.encode()).fetchone()
            return row[0] if row else None

    def create(self, database: str, template: str | None = None) -> None:
        """Make a database afresh, perhaps as a copy of another, and leave nothing of it to be written later."""
        self.drop(database)
        with self.connect() as connection:
            copy = sql.SQL("TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template or "template1"))
            connection.execute(sql.SQL("CREATE DATABASE {} ").format(sql.Identifier(database)) + copy)
            connection.execute("CHECKPOINT")

    def drop(self, database: str) -> None:
        """Drop a database, and whoever is connected to it."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def written(self) -> int:
        """Return how many bytes of WAL there have been."""
        return int(self.value("postgres", "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    def version(self) -> str:
        """Return the server's version."""
        return str(self.value("postgres", "SHOW server_version"))

    def _library_folder(self) -> str:
        command = [str(self._programs.bin_path / "pg_config"), "--pkglibdir"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def _control(self, verb: str) -> tuple[str, ...]:
        return ("pg_ctl", verb, "-w", "-s", "-D", str(self.data))


class RedisServer:
    """A Redis with snapshots as its own configuration has them, and no append-only file."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("Celery is measured with Redis, but there is no redis-server to run.")
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "no"]
        save = ["--save", "3600 1 300 100 60 10000"]
        self._process = subprocess.Popen([program, *options, *save], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not _accepts(self.port):
            if time.monotonic() > deadline:
                raise TimeoutError("redis-server does not accept connections")
            time.sleep(0.05)

    @property
    def process(self) -> psutil.Process:
        """The server."""
        return psutil.Process(self._process.pid)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
