"""One PostgreSQL in a folder, for all the processes that use it.

Every user holds a shared lock on `users.lock` for as long as it lives; the kernel takes it back
however the process ends, `kill -9` included. The keeper waits for the exclusive lock, which it
gets when the last user has gone, and then stops the server. So no user has to clean up, and none
can stop the server under another.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from testproject.embedded.programs import PostgresPrograms, ServerUnavailable

if TYPE_CHECKING:
    import psutil

logger = logging.getLogger(__name__)

CHECKOUT = Path(__file__).resolve().parents[2]
PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
# A socket's path may have 107 bytes on Linux and 103 on macOS.
LONGEST_SOCKET_PATH = 103
# Not the temporary directory of the moment: every process must find the same one.
SHORT_FOLDER = Path("/tmp")  # noqa: S108 - holds a folder of ours, whose owner is checked
START_SECONDS = 60

# The open lock files by folder. Closing one gives up this process's use of that server.
_uses: dict[Path, BinaryIO] = {}


class EmbeddedServer:
    """The server in one folder. Any number of processes and threads may `use` it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.data = self.folder / "data"
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        # PostgreSQL shows it in the title of each of its processes: that is how we know ours.
        self.cluster_name = f"embedded-{digest}"

    @property
    def socket_folder(self) -> Path:
        """Where the socket is: beside the data, or in a short folder if that path is too long."""
        path = os.fsencode(self.data / SOCKET_NAME)
        if len(path) <= LONGEST_SOCKET_PATH and b"," not in path:  # a comma separates hosts
            return self.data
        return SHORT_FOLDER / self.cluster_name

    @property
    def url(self) -> str:
        """What DATABASE_URL would be."""
        # Host and port as parameters: django-environ does not decode a socket's path as the host.
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket_folder))}&port={PORT}"

    @property
    def database(self) -> dict[str, Any]:
        """The entry for DATABASES whose connections start the server."""
        return {
            "ENGINE": "testproject.embedded.backend",
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": str(self.socket_folder),
            "PORT": str(PORT),
            "OPTIONS": {"folder": str(self.folder)},
        }

    def use(self) -> None:
        """Return when the server accepts connections; it then runs while this process lives.

        Starts it if need be, also after it was killed or the machine was switched off.
        """
        if self._is_in_use() and self.is_ready():
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self.lock("start.lock", fcntl.LOCK_EX):
                if not self._is_in_use():
                    if self.folder in _uses:
                        _uses.pop(self.folder).close()
                    # Waits for a keeper that is stopping the server.
                    _uses[self.folder] = self.lock("users.lock", fcntl.LOCK_SH)
                if not self.is_ready():
                    self._start()
                self._appoint_keeper()
        except PermissionError as error:
            raise ServerUnavailable(
                f"{error}. The embedded PostgreSQL belongs to the user who first started it: "
                f"run as that user, remove {self.folder}, or set DATABASE_URL."
            ) from error

    def is_ready(self) -> bool:
        """Whether the server accepts connections and has finished its recovery."""
        if self._postmaster_file()[7:8] != ["ready"]:
            return False
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket_folder / SOCKET_NAME)) == 0

    def find_pid(self) -> int | None:
        """The running server's process id, or None. A stale postmaster.pid is not believed."""
        written = self._postmaster_file()[:1]
        return next((p.pid for p in self._find_processes() if [str(p.pid)] == written), None)

    def stop(self) -> None:
        """Shut the server down cleanly; its clients lose their connections."""
        if self.find_pid() is not None:
            programs = PostgresPrograms(self.data)
            programs.run("pg_ctl", "stop", "-w", "-m", "fast", "-t", "60", "-D", str(self.data))

    def lock(self, name: str, operation: int) -> BinaryIO:
        """Open one of the folder's lock files and lock it until it is closed."""
        file = (self.folder / name).open("ab")
        try:
            fcntl.flock(file, operation)
        except BaseException:
            file.close()
            raise
        return file

    def still_has(self, name: str, file: BinaryIO) -> bool:
        """Return whether this open lock file is the folder's; not if the folder was removed and made anew."""
        path = self.folder / name
        return path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))

    def _is_in_use(self) -> bool:
        file = _uses.get(self.folder)
        return file is not None and self.still_has("users.lock", file)

    def _appoint_keeper(self) -> None:
        try:
            self.lock("keeper.lock", fcntl.LOCK_EX | fcntl.LOCK_NB).close()
        except BlockingIOError:
            return
        path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
        # Returns when the keeper, which goes on in the background, holds its lock.
        subprocess.run(
            [sys.executable, "-m", "testproject.embedded.keeper", str(self.folder)],
            check=True,
            cwd="/",
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def _start(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.find_pid() is not None:  # on its way, perhaps started by a command that died
            if self.is_ready():
                return
            if time.monotonic() > deadline:
                raise ServerUnavailable(
                    f"The embedded PostgreSQL in {self.folder} runs but does not answer; "
                    f"its log is {self.data / 'server.log'}."
                )
            time.sleep(0.05)
        if not self.data.exists():
            self._initialise()
        programs = PostgresPrograms(self.data)
        self._clear_remains()
        self._prepare_socket_folder(programs)
        self._launch(programs)

    def _initialise(self) -> None:
        logger.info("setting up an embedded PostgreSQL in %s", self.folder)
        # Renamed when complete: an initdb that was killed leaves a folder that looks like data.
        fresh = self.folder / "data.incomplete"
        if fresh.exists():
            shutil.rmtree(fresh)
        fresh.mkdir(mode=0o700)
        programs = PostgresPrograms(fresh)
        programs.give(fresh)
        programs.run(
            *("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "-D", str(fresh)),
        )
        fresh.rename(self.data)

    def _clear_remains(self) -> None:
        import psutil

        # Children of a killed server hold its shared memory until they notice that it is gone.
        _, alive = psutil.wait_procs(self._find_processes(), timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):  # a child ends with its killed parent
                process.kill()
        psutil.wait_procs(alive, timeout=5)
        # PostgreSQL does not start if the number in these is now that of any other program.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.socket_folder / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)

    def _prepare_socket_folder(self, programs: PostgresPrograms) -> None:
        folder = self.socket_folder
        if folder == self.data:
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        owners = (os.geteuid(), programs.uid)
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid not in owners:
            raise ServerUnavailable(
                f"The path {self.data} is too long for a socket, and {folder}, to be used "
                "instead, belongs to someone else. Move the checkout to a shorter path, or set "
                "DATABASE_URL."
            )
        programs.give(folder)

    def _launch(self, programs: PostgresPrograms) -> None:
        options = {
            "cluster_name": self.cluster_name,
            "listen_addresses": "",
            "max_connections": "200",
            "port": str(PORT),
            "unix_socket_directories": f'"{self.socket_folder}"',
        }
        log = self.data / "server.log"
        try:
            programs.run(
                *("pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-D", str(self.data)),
                *("-l", str(log)),
                *("-o", shlex.join(f"--{name}={value}" for name, value in options.items())),
            )
        except ServerUnavailable as error:
            last_lines = "\n".join(log.read_text().splitlines()[-10:]) if log.exists() else ""
            raise ServerUnavailable(f"{error}\nThe end of {log}:\n{last_lines}") from error

    def _postmaster_file(self) -> list[str]:
        try:
            text = (self.data / "postmaster.pid").read_text(errors="replace")
        except FileNotFoundError:
            return []
        return [line.strip() for line in text.splitlines()]

    def _find_processes(self) -> list[psutil.Process]:
        import psutil

        return [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "postgres"
            and any(self.cluster_name in part for part in process.info["cmdline"] or ())
        ]
