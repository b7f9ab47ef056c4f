"""A pgbouncer in transaction mode between the workers and the server of the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from django.db import connection

from tests.actors import wait_for
from tests.ports import free_port

CONFIGURATION = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
logfile = {folder}/pgbouncer.log
"""


def find_program() -> str | None:
    """Return the path of pgbouncer, if it is installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Pooler:
    """Shares four server sessions among all clients: what one transaction leaves in a session, another finds there."""

    def __init__(self, program: str) -> None:
        database = connection.settings_dict
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="pooler-"))
        configuration = self._folder / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(
                host=database["HOST"] or "127.0.0.1",
                port=database["PORT"] or 5432,
                user=database["USER"],
                listen_port=self.port,
                folder=self._folder,
            )
        )
        self._process = subprocess.Popen([program, *self._as_other_user(database["HOST"]), str(configuration)])
        try:
            wait_for(self._answers, what="the pooler to listen")
        except AssertionError:
            self.stop()
            raise

    def environment(self) -> dict[str, str]:
        """Return what sends a worker's connections through the pooler."""
        return {"TESTS_DATABASE_HOST": "127.0.0.1", "TESTS_DATABASE_PORT": str(self.port)}

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder)

    def _as_other_user(self, socket_folder: str) -> list[str]:
        # It refuses to run as root; the owner of the server's socket may reach it.
        if os.geteuid() != 0:
            return []
        owner = pwd.getpwuid(os.stat(socket_folder).st_uid) if socket_folder.startswith("/") else pwd.getpwnam("nobody")
        os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        return ["-u", owner.pw_name]

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
