"""The embedded PostgreSQL: shared, started again after every kind of death, stopped cleanly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from testproject.embedded import server as server_module
from testproject.embedded.programs import ServerUnavailable
from testproject.embedded.server import CHECKOUT, EmbeddedServer

USE_UNTIL_TOLD = """
import sys
from pathlib import Path
from testproject.embedded.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.use()
print(server.find_pid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with removed_after(Path(tempfile.mkdtemp(prefix="embedded-"))) as path:
        yield path


@contextmanager
def removed_after(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        server = EmbeddedServer(path)
        wait_until(lambda: server.find_pid() is None)
        if server.socket_folder != server.data:
            shutil.rmtree(server.socket_folder, ignore_errors=True)
        shutil.rmtree(path)


class User:
    """Another process that uses the server."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USE_UNTIL_TOLD, str(folder)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for_pid(self) -> int:
        """The server's process id, when this user has it."""
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate("")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def user_of(folder: Path) -> Iterator[User]:
    user = User(folder)
    try:
        yield user
    finally:
        if user.process.returncode is None:
            user.leave()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def answer_of(server: EmbeddedServer) -> int:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT 42").fetchone()[0]


def log_of(server: EmbeddedServer) -> str:
    return (server.data / "server.log").read_text()


def test_processes_that_start_at_once_share_one_server(folder):
    with user_of(folder) as first, user_of(folder) as second, user_of(folder) as third:
        pids = {user.wait_for_pid() for user in (first, second, third)}
        assert len(pids) == 1
        first.leave()
        second.kill()
        assert answer_of(EmbeddedServer(folder)) == 42


def test_the_server_is_stopped_cleanly_after_its_last_user(folder):
    server = EmbeddedServer(folder)
    with user_of(folder) as user:
        user.wait_for_pid()
    wait_until(lambda: server.find_pid() is None)
    assert log_of(server).rstrip().endswith("database system is shut down")
    assert not (server.data / "postmaster.pid").exists()


def test_the_server_is_stopped_cleanly_after_its_last_user_was_killed(folder):
    server = EmbeddedServer(folder)
    with user_of(folder) as user:
        user.wait_for_pid()
        user.kill()
    wait_until(lambda: server.find_pid() is None)
    assert log_of(server).rstrip().endswith("database system is shut down")


def test_a_user_that_comes_while_the_server_is_stopped_gets_one_that_stays(folder):
    server = EmbeddedServer(folder)
    for _ in range(3):
        with user_of(folder) as user:
            user.wait_for_pid()
        with user_of(folder) as user:
            pid = user.wait_for_pid()
            assert answer_of(server) == 42
            assert server.find_pid() == pid


def test_a_killed_server_is_started_again_with_what_was_committed(folder):
    server = EmbeddedServer(folder)
    with user_of(folder) as first:
        pid = first.wait_for_pid()
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        with psycopg.connect(server.url):  # its backend outlives the postmaster for a moment
            os.kill(pid, signal.SIGKILL)
            with user_of(folder) as second:
                assert second.wait_for_pid() != pid
                with psycopg.connect(server.url) as connection:
                    assert connection.execute("SELECT number FROM kept").fetchone() == (1,)


def test_the_first_user_starts_a_killed_server_again_at_its_next_use(folder):
    with in_this_process(folder) as server:
        pid = server.find_pid()
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=60)
        server.use()
        assert server.find_pid() not in (None, pid)
        assert answer_of(server) == 42


def test_a_folder_that_is_removed_under_its_user_begins_anew_and_that_user_stops_nothing_new(folder):
    with user_of(folder) as old:
        old_pid = old.wait_for_pid()
        keeper = next(each for each in psutil.process_iter(["cmdline"]) if is_keeper_of(folder, each))
        remove(folder)
        with user_of(folder) as new:
            pid = new.wait_for_pid()
            assert pid != old_pid
            old.leave()
            psutil.wait_procs([keeper], timeout=60)
            assert EmbeddedServer(folder).find_pid() == pid
            assert answer_of(EmbeddedServer(folder)) == 42


def is_keeper_of(folder: Path, process: psutil.Process) -> bool:
    return (process.info["cmdline"] or [])[-2:] == ["testproject.embedded.keeper", str(folder)]


def remove(folder: Path) -> None:
    while folder.exists():  # the server writes in it as it goes
        shutil.rmtree(folder, ignore_errors=True)


def test_a_user_whose_folder_was_removed_joins_those_who_use_the_new_one(folder):
    with in_this_process(folder) as server:
        remove(folder)
        with user_of(folder) as other:
            pid = other.wait_for_pid()
            server.use()
        with user_of(folder) as another:
            assert another.wait_for_pid() == server.find_pid() == pid, "it was not stopped in between"


def test_a_postmaster_file_that_is_no_text_is_not_believed(folder):
    with user_of(folder) as user:
        os.kill(user.wait_for_pid(), signal.SIGKILL)
    server = EmbeddedServer(folder)
    wait_until(lambda: server.find_pid() is None)
    (server.data / "postmaster.pid").write_bytes(b"\xff\xfe\n" * 10)
    with user_of(folder) as user:
        user.wait_for_pid()
        assert answer_of(server) == 42


@pytest.mark.parametrize("owner", ["dead", "living"])
def test_a_stale_postmaster_file_is_not_believed(folder, owner):
    server = EmbeddedServer(folder)
    with user_of(folder) as user:
        os.kill(user.wait_for_pid(), signal.SIGKILL)
    wait_until(lambda: server.find_pid() is None)
    file = server.data / "postmaster.pid"
    # As after a restart of the machine: the number is nobody's now, or that of any program.
    number = os.getpid() if owner == "living" else find_free_pid()
    file.write_text("\n".join([str(number), *file.read_text().splitlines()[1:]]) + "\n")
    with user_of(folder) as user:
        assert user.wait_for_pid() != number
        assert answer_of(server) == 42


def test_an_interrupted_setup_is_begun_again(folder):
    incomplete = folder / "data.incomplete"
    incomplete.mkdir()
    (incomplete / "PG_VERSION").write_text("18\n")
    with user_of(folder) as user:
        user.wait_for_pid()
        assert answer_of(EmbeddedServer(folder)) == 42


def test_a_path_too_long_for_a_socket_has_its_socket_elsewhere():
    with removed_after(Path(tempfile.mkdtemp(prefix="embedded-" + "long" * 30))) as folder:
        server = EmbeddedServer(folder)
        with user_of(folder) as user:
            user.wait_for_pid()
            assert server.socket_folder.parent == server_module.SHORT_FOLDER
            assert answer_of(server) == 42


def test_a_short_folder_of_somebody_else_is_refused(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(server_module, "LONGEST_SOCKET_PATH", 10)
    monkeypatch.setattr(server_module, "SHORT_FOLDER", tmp_path)
    server = EmbeddedServer(folder)
    server.socket_folder.symlink_to(tmp_path)
    with pytest.raises(ServerUnavailable, match="Move the checkout to a shorter path"):
        server.use()
    server_module._uses.pop(server.folder).close()


def test_fsync_is_on(folder):
    with user_of(folder) as user:
        user.wait_for_pid()
        with psycopg.connect(EmbeddedServer(folder).url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)


@contextmanager
def in_this_process(folder: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(folder)
    server.use()
    try:
        yield server
    finally:
        server_module._uses.pop(server.folder).close()


def find_free_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
