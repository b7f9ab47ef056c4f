"""A private PostgreSQL on a TCP port of its own, so that it may be crashed without harm to anybody else."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import psycopg

from testproject.embedded.programs import PostgresPrograms

DATABASE = "chaos"
START_SECONDS = 60


class ChaosServer:
    """The server in one folder. Its data survive a crash of the server, though not a power cut: fsync is off."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.log = folder / "postgresql.log"
        self.port = _free_port()
        self.data.mkdir(mode=0o700)
        self._programs = PostgresPrograms(self.data)
        self._programs.give(self.data)

    def create(self) -> None:
        """Initialise the data, start, and create the database."""
        self._programs.run(
            *("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"),
            *("-D", str(self.data)),
        )
        self.log.touch()
        self._programs.give(self.log)
        self.start()
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")

    def start(self) -> None:
        """Return when the server accepts connections."""
        options = {
            "fsync": "off",
            "listen_addresses": "127.0.0.1",
            "max_connections": "300",
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        settings = shlex.join(f"--{name}={value}" for name, value in options.items())
        self._programs.run(*self._control("start"), "-t", str(START_SECONDS), "-l", str(self.log), "-o", settings)

    def crash(self) -> None:
        """Shut down at once, without a word to the clients and with work for the recovery, and start again."""
        self._programs.run(*self._control("stop"), "-m", "immediate")
        self.start()

    def stop(self) -> None:
        """Shut down cleanly, if it runs."""
        if (self.data / "postmaster.pid").exists():
            self._programs.run(*self._control("stop"), "-m", "fast")

    def connect(self, database: str = DATABASE) -> psycopg.Connection:
        """Open a connection past the proxy; it may write also while the server is read-only."""
        options = "-c default_transaction_read_only=off -c application_name=chaos"
        return psycopg.connect(self._dsn(database), autocommit=True, options=options)

    def url(self, port: int | None = None) -> str:
        """What DATABASE_URL is for a process that reaches the server through `port`."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{DATABASE}"

    def become_read_only(self, read_only: bool) -> None:
        """Refuse writes in every new transaction, or accept them again."""
        with self.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if read_only else 'off'}")
            connection.execute("SELECT pg_reload_conf()")

    def terminate_backends(self, share: float) -> int:
        """End the sessions of clients, each with the probability `share`; return how many."""
        with self.connect() as connection:
            row = connection.execute(
                """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = %s AND pid <> pg_backend_pid() AND random() < %s""",
                [DATABASE, share],
            ).fetchone()
        return row[0] if row else 0

    def _dsn(self, database: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def _control(self, verb: str) -> tuple[str, ...]:
        return ("pg_ctl", verb, "-w", "-s", "-D", str(self.data))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
