"""The network between the processes and the server: it can be cut, frozen, made deaf and slow, and healed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable

CHUNK = 65536
HOST = "127.0.0.1"

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: send RST, not FIN


class Route:
    """One port that leads to the server. Its state is changed from the thread that owns the run."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, server_port: int) -> None:
        self.name = name
        self.port = 0
        self._loop = loop
        self._server_port = server_port
        self._is_cut = False
        self._is_deaf = False
        self._latency = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._links: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self.links_made = 0

    # --- from other threads

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._is_cut = True
        self._call(self._reset)

    def freeze(self) -> None:
        """Forward nothing, but keep every connection: neither side hears of it."""
        self._call(self._flowing.clear)

    def deafen(self) -> None:
        """Forward what the clients send and swallow what the server answers."""
        self._is_deaf = True

    def slow_down(self, latency: float) -> None:
        """Hold back everything for so many seconds, in both directions."""
        self._latency = latency

    def heal(self, *, reset: bool = False) -> None:
        """Forward again, what was held back first; with `reset`, the connections of before are gone."""
        self._is_cut = self._is_deaf = False
        self._latency = 0.0
        if reset:
            self._call(self._reset)
        self._call(self._flowing.set)

    def _call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    # --- on the event loop

    async def listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, HOST, 0, limit=CHUNK)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _accept(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._is_cut:
            _abort(client)
            return
        try:
            server_reader, server = await asyncio.open_connection(HOST, self._server_port, limit=CHUNK)
        except OSError:
            _abort(client)
            return
        self.links_made += 1
        self._links |= {client, server}
        try:
            await asyncio.gather(
                self._forward(client_reader, server, is_answer=False),
                self._forward(server_reader, client, is_answer=True),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links -= {client, server}
            _abort(client)
            _abort(server)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(CHUNK):
            if self._latency:
                await asyncio.sleep(self._latency)
            await self._flowing.wait()
            if is_answer and self._is_deaf:
                continue
            writer.write(data)
            await writer.drain()
        await self._flowing.wait()
        raise ConnectionResetError  # one side has gone: so does the other

    def _reset(self) -> None:
        for writer in list(self._links):
            _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()


class Proxy:
    """All routes, on one event loop in a thread of its own."""

    def __init__(self, server_port: int) -> None:
        self.routes: list[Route] = []
        self._server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def open_route(self, name: str) -> Route:
        """Return a new route that forwards at once."""

        async def open_here() -> Route:
            route = Route(name, self._loop, self._server_port)
            await route.listen()
            return route

        route = asyncio.run_coroutine_threadsafe(open_here(), self._loop).result(timeout=10)
        self.routes.append(route)
        return route

    def heal(self) -> None:
        """Heal every route."""
        for route in self.routes:
            route.heal()

    def close(self) -> None:
        """End the thread; what is open is cut."""
        for route in self.routes:
            route.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
