"""A way to the database that can be cut, at the worst moment or at any, and healed again."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from django.db import connections

IsMeant = Callable[[bytes], bool]


@dataclass
class Cut:
    """Cuts one connection, once: when the server has answered the message that is meant, before the client hears it.

    `happened` is set when the answer was swallowed. `refused`: the message itself does not reach the server.
    """

    is_meant: IsMeant
    refused: bool = False
    happened: threading.Event = field(default_factory=threading.Event)
    is_taken: bool = False


class Proxy:
    """Listens on a port of its own and passes on what clients and the server of `using` say to each other."""

    def __init__(self, using: str = "default") -> None:
        settings = connections[using].settings_dict
        self._host, self._port = settings["HOST"] or "localhost", int(settings["PORT"] or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._mutex = threading.Lock()
        self._links: list[_Link] = []
        self._cuts: list[Cut] = []
        self._is_open = True
        self.round_trip = 0.0  # seconds that the end of each answer is on its way
        self.answers = 0
        self.passes = threading.Event()  # cleared: what is sent is held back, both ways
        self.passes.set()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def environment(self) -> dict[str, str]:
        """What makes a worker process of the tests go this way."""
        port = self._listener.getsockname()[1]
        return {
            "TESTS_DATABASE_HOST": "127.0.0.1",
            "TESTS_DATABASE_PORT": str(port),
            "PGSSLMODE": "disable",
            "PGGSSENCMODE": "disable",
        }

    def cut_after(self, is_meant: IsMeant) -> Cut:
        """Swallow the server's answer to the next message that is meant, and cut its connection."""
        return self._add(Cut(is_meant))

    def cut_before(self, is_meant: IsMeant) -> Cut:
        """Cut the connection of the next message that is meant; it never reaches the server."""
        return self._add(Cut(is_meant, refused=True))

    def cut_all(self) -> None:
        """Cut every connection; new ones are let through."""
        with self._mutex:
            links = list(self._links)
        for link in links:
            link.cut()

    def freeze(self) -> None:
        """Swallow for ever what the connections of now say, and tell neither end; new ones are let through."""
        with self._mutex:
            for link in self._links:
                link.is_frozen = True

    def close(self) -> None:
        self._is_open = False
        self.passes.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for the next client
        self._acceptor.join()
        self._listener.close()
        for link in self._links:
            link.close()

    def delay_answer(self) -> None:
        with self._mutex:
            self.answers += 1
        threading.Event().wait(self.round_trip)

    def _add(self, cut: Cut) -> Cut:
        with self._mutex:
            self._cuts.append(cut)
        return cut

    def take_cut(self, message: bytes) -> Cut | None:
        with self._mutex:
            for cut in self._cuts:
                if not cut.is_taken and cut.is_meant(message):
                    cut.is_taken = True
                    return cut
        return None

    def _accept(self) -> None:
        with suppress(OSError):
            while self._is_open:
                client, _ = self._listener.accept()
                try:
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    server = self._connect()
                except OSError:  # the server is down: so is the way to it
                    client.close()
                    continue
                link = _Link(self, client, server)
                link.start()
                with self._mutex:
                    self._links.append(link)

    def _connect(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(os.fspath(Path(self._host, f".s.PGSQL.{self._port}")))
        except OSError:
            server.close()
            raise
        return server


class _Link:
    """One client's connection: a thread for each direction, message by message."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._cut: Cut | None = None
        self.is_frozen = False
        self._threads = [
            threading.Thread(target=self._pump, args=[pump], daemon=True) for pump in (self._pump_up, self._pump_down)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Cut it, and wait for its end."""
        self.cut()
        for thread in self._threads:
            thread.join()
        self._client.close(), self._server.close()

    def cut(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pump(self, pump: Callable[[], None]) -> None:
        with suppress(OSError, EOFError):
            pump()
        self.cut()

    def _pump_up(self) -> None:
        self._server.sendall(_read(self._client, has_type=False))  # the first message has no type
        while True:
            message = _read(self._client)
            self._proxy.passes.wait()
            if self.is_frozen:
                continue
            cut = self._proxy.take_cut(message)
            if cut is not None and cut.refused:
                cut.happened.set()
                return
            self._cut = self._cut or cut
            self._server.sendall(message)

    def _pump_down(self) -> None:
        while True:
            message = _read(self._server)
            self._proxy.passes.wait()
            if self.is_frozen:
                continue
            if self._cut is None:
                if message[:1] == b"Z":
                    self._proxy.delay_answer()
                self._client.sendall(message)
            elif message[:1] == b"Z":  # ready for the next query: the server has done what was asked
                self._cut.happened.set()
                return


def _read(end: socket.socket, *, has_type: bool = True) -> bytes:
    head = _read_exactly(end, 5 if has_type else 4)
    (length,) = struct.unpack("!i", head[-4:])
    return head + _read_exactly(end, length - 4)


def _read_exactly(end: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = end.recv(length - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
