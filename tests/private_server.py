"""A PostgreSQL of a test's own, that it may restart and break; reached as the database alias `private`."""

from __future__ import annotations

from pathlib import Path

from django.core.management import call_command
from django.db import connections

from testproject.embedded.programs import PostgresPrograms
from testproject.embedded.server import PORT, EmbeddedServer

ALIAS = "private"


class PrivateServer:
    """Runs in `folder` with the tables of the tests."""

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedServer(folder)
        self._server.use()
        entry = {**connections.settings["default"], "ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}
        entry |= {"USER": "postgres", "PASSWORD": "", "HOST": str(self._server.socket_folder), "PORT": str(PORT)}
        connections.settings[ALIAS] = {**entry, "OPTIONS": {}}
        call_command("migrate", database=ALIAS, run_syncdb=True, verbosity=0)

    def crash(self) -> None:
        """End the server as a power cut would: every session is lost at once."""
        connections[ALIAS].close()
        PostgresPrograms(self._server.data).run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self._server.data))

    def start(self) -> None:
        """Start it again; returns when it has recovered."""
        self._server.use()

    def set_read_only(self, is_read_only: bool) -> None:
        """Refuse or accept writes in every session from now on, as a standby does."""
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if is_read_only else 'off'}")
            cursor.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        """Stop it for good."""
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]
        self._server.stop()
