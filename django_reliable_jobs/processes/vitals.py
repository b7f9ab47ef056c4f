"""What a supervisor sees of a worker process from outside, also after it was killed: numbers in shared memory."""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

ENVIRONMENT = "RELIABLE_JOBS_VITALS"  # the path of the file, set by the supervisor for its children

_HEADER = struct.Struct("=ddq")  # last turn, last heartbeat (both of the machine's monotonic clock), worker id
_TOKEN = struct.Struct("=q")


class Vitals:
    """Written by the worker, read by its supervisor. Eight bytes are written at once, so no lock is needed."""

    def __init__(self, memory: mmap.mmap, threads: int) -> None:
        self._memory = memory
        self.threads = threads

    @classmethod
    def of_one(cls, threads: int) -> Vitals:
        """Return vitals that nobody else sees, for a worker without a supervisor."""
        return cls(mmap.mmap(-1, _size(threads)), threads)

    @classmethod
    def create(cls, path: Path, threads: int) -> Vitals:
        """Make the file; the supervisor's side."""
        path.write_bytes(bytes(_size(threads)))
        return cls.open(path, threads)

    @classmethod
    def open(cls, path: Path, threads: int) -> Vitals:
        """Map the file that the supervisor made; the worker's side."""
        with path.open("r+b") as file:
            return cls(mmap.mmap(file.fileno(), _size(threads)), threads)

    @classmethod
    def of_this_process(cls, threads: int) -> Vitals:
        """Return what the supervisor gave this process, or vitals of its own."""
        path = os.environ.get(ENVIRONMENT)
        return cls.open(Path(path), threads) if path else cls.of_one(threads)

    # --- written by the worker

    def turned(self) -> None:
        struct.pack_into("=d", self._memory, 0, time.monotonic())

    def beat(self, worker_id: int) -> None:
        struct.pack_into("=dq", self._memory, 8, time.monotonic(), worker_id)

    def started(self, thread: int, token: int | None) -> None:
        """Note that a thread begins the job of this token; None: that it has ended it."""
        _TOKEN.pack_into(self._memory, _HEADER.size + thread * _TOKEN.size, token or 0)

    # --- read by the supervisor

    @property
    def turned_at(self) -> float:
        return float(_HEADER.unpack_from(self._memory)[0])

    @property
    def beat_at(self) -> float:
        return float(_HEADER.unpack_from(self._memory)[1])

    @property
    def worker_id(self) -> int:
        return int(_HEADER.unpack_from(self._memory)[2])

    @property
    def started_tokens(self) -> set[int]:
        tokens = (
            _TOKEN.unpack_from(self._memory, _HEADER.size + thread * _TOKEN.size)[0] for thread in range(self.threads)
        )
        return {int(token) for token in tokens if token}


def _size(threads: int) -> int:
    return _HEADER.size + threads * _TOKEN.size
