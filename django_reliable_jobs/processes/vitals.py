"""What a supervisor sees of a worker process, also after it was killed: a few numbers in shared memory."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

ENVIRONMENT = "RELIABLE_JOBS_VITALS"  # the path of the file, set by the supervisor for its children

# More than a worker holds of jobs that have started and whose ending it does not know to be written: twice what it has
# in hand, as it takes in the answer of one exchange while the jobs of the next are at work.
SLOTS = 4096

# Last turn, last heartbeat (the machine's monotonic clock), worker id, tokens missed, gave up.
_HEADER = struct.Struct("=ddqqq")
_TOKEN = struct.Struct("=q")
_SIZE = _HEADER.size + SLOTS * _TOKEN.size


class Vitals:
    """Written by the worker, read by its supervisor. Eight bytes are written at once, so that no reader sees half."""

    def __init__(self, memory: mmap.mmap, *, is_seen: bool = True) -> None:
        self._memory = memory
        self._is_seen = is_seen
        self._changing = threading.Lock()
        self._free = list(range(SLOTS))
        self._slots: dict[int, int] = {}

    @classmethod
    def of_one(cls) -> Vitals:
        """Return vitals that nobody else sees, for a worker without a supervisor."""
        return cls(mmap.mmap(-1, _SIZE), is_seen=False)

    @classmethod
    def create(cls, path: Path) -> Vitals:
        """Make the file; the supervisor's side."""
        path.write_bytes(bytes(_SIZE))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Vitals:
        """Map the file that the supervisor made; the worker's side."""
        with path.open("r+b") as file:
            return cls(mmap.mmap(file.fileno(), _SIZE))

    @classmethod
    def of_this_process(cls) -> Vitals:
        """Return what the supervisor gave this process, or vitals of its own."""
        path = os.environ.get(ENVIRONMENT)
        return cls.open(Path(path)) if path else cls.of_one()

    # --- written by the worker

    def turned(self) -> None:
        struct.pack_into("=d", self._memory, 0, time.monotonic())

    def beat(self, worker_id: int) -> None:
        struct.pack_into("=dq", self._memory, 8, time.monotonic(), worker_id)

    def gave_up(self) -> None:
        """Note that this process ends since its database does not answer: another would fare no better."""
        struct.pack_into("=q", self._memory, 32, 1)

    def started(self, token: int) -> None:
        """Note that the job of this token begins; from here on a loss of this process is a loss of the job."""
        if not self._is_seen:
            return
        with self._changing:
            if not self._free:
                struct.pack_into("=q", self._memory, 24, 1)
                return
            slot = self._slots[token] = self._free.pop()
            self._write(slot, token)

    def settled(self, tokens: Iterable[int]) -> None:
        """Note that the endings of these jobs are written, or are not ours to write."""
        if not self._is_seen:
            return
        with self._changing:
            for token in tokens:
                slot = self._slots.pop(token, None)
                if slot is not None:
                    self._write(slot, 0)
                    self._free.append(slot)

    def _write(self, slot: int, token: int) -> None:
        _TOKEN.pack_into(self._memory, _HEADER.size + slot * _TOKEN.size, token)

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
    def has_given_up(self) -> bool:
        return bool(_HEADER.unpack_from(self._memory)[4])

    @property
    def started_tokens(self) -> set[int] | None:
        """The jobs that had begun and whose ending was not known to be written; None: there were too many to say."""
        if _HEADER.unpack_from(self._memory)[3]:
            return None
        tokens = struct.unpack_from(f"={SLOTS}q", self._memory, _HEADER.size)
        return {token for token in tokens if token}
