"""`--reload`, for development: a parent process starts the command again whenever code changes.

Django's own reloader ends its child in the middle of whatever it does. Here the child is asked to stop, so that a job
that it runs is given back, whichever way the end comes: a change of code, Ctrl-C, or SIGTERM to the parent.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.utils import autoreload

from django_reliable_jobs.processes.worker import RECYCLED

logger = logging.getLogger("django_reliable_jobs")

RELOAD = 3  # the exit code with which a child asks to be started again
BROKEN = 1  # the exit code of Python when the code can't be imported
WATCH_SECONDS = 0.5


def is_parent() -> bool:
    """Return whether this process is the one that starts the others."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true"


def run_children() -> int:
    """Start this command as a child, again and again while its code changes; return the last exit code.

    Once it was asked to stop, a child that had not begun, or that asks for another in its place, has ended well.
    """
    stopped = threading.Event()
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: object) -> None:
        stopped.set()
        # Ctrl-C in a terminal reaches the child by itself.
        if number == signal.SIGTERM and child is not None:
            child.terminate()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    while True:
        before = _moments_of_files()
        child = subprocess.Popen(autoreload.get_child_arguments(), env=environment)  # noqa: S603 - this command
        if stopped.is_set():  # since the last child ended: nobody has told this one
            child.terminate()
        code = child.wait()
        if stopped.is_set():
            return 0 if code in (RELOAD, RECYCLED, -signal.SIGTERM) else code
        if code == BROKEN:
            logger.error("the code can't be started as it is; waiting for the next change")
            while _moments_of_files() == before:
                time.sleep(WATCH_SECONDS)
                if stopped.is_set():
                    return code
        elif code not in (RELOAD, RECYCLED):
            return code


def watch(stop: Callable[[], None]) -> threading.Event:
    """In a child: when code changes, call `stop` twice, so that what runs is given back at once, and set the event."""
    changed = threading.Event()

    def wait_for_change() -> None:
        try:
            autoreload.get_reloader().run(threading.main_thread())
        except SystemExit:  # how the reloader tells of a change
            changed.set()
            stop()
            stop()

    threading.Thread(target=wait_for_change, name="reliable-jobs-reload", daemon=True).start()
    return changed


def _moments_of_files() -> dict[Path, int]:
    moments = {}
    for path in autoreload.iter_all_python_module_files():
        try:
            moments[path] = path.stat().st_mtime_ns
        except OSError:  # just being replaced
            moments[path] = 0
    return moments
