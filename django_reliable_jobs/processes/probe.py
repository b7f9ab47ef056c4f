"""A port at which an orchestrator asks whether a process lives: whether its loops turn.

It tells nothing of the database, nor of the fleet: a process that waits for a lost server is alive, and starting it
anew would help nobody. What is wrong with the fleet, `jobs check` and the health view tell.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

ASKER_SECONDS = 5.0  # for a client to send its request

Complaints = Callable[[], list[str]]
Page = Callable[[], tuple[str, bytes]]  # returns content type and content
# Name, number, last turn (of the monotonic clock), and how long it may take to turn again.
OwnThread = tuple[str, int | None, float, float]


def complaints_of(threads: Iterable[OwnThread]) -> list[str]:
    """Return a sentence for each thread that has not turned for longer than it may; one that has not begun may wait."""
    now = time.monotonic()
    return [
        f"the {name} has not turned for {now - turned_at:.0f} s"
        for name, number, turned_at, patience in threads
        if number is not None and turned_at and now - turned_at > patience
    ]


class Probe:
    """Answers 200 while there are no complaints, otherwise 503 and what they are. `pages` are served beside it."""

    def __init__(self, port: int, complaints: Complaints, *, pages: Mapping[str, Page] | None = None) -> None:
        self._server = _Server(("", port), _handler(complaints, dict(pages or {})))
        self.port = self._server.server_port

    def start(self) -> None:
        """Answer, in a thread of its own, until the process ends."""
        threading.Thread(target=self._server.serve_forever, name="reliable-jobs-probe", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Listens at every address of the host, of IPv4 and of IPv6: a pod may have but one of them."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)  # HTTPServer's asks a name server for a name that nobody needs
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An asker that hangs up is nobody's fault."""


def _handler(complaints: Complaints, pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = ASKER_SECONDS

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is not None:
                self._answer(200, *page())
                return
            found = complaints()
            text = "\n".join(found) or "alive"
            self._answer(503 if found else 200, "text/plain; charset=utf-8", f"{text}\n".encode())

        do_HEAD = do_GET

        def _answer(self, status: int, content_type: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Askers come every few seconds."""

    return Handler
