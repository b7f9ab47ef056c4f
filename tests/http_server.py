"""A web server on this machine that answers as a test tells it, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class WebServer:
    """`status` and `headers` are what it answers; while `hangs` is not set free, it does not answer at all."""

    port: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body, _ in self.requests]


@contextmanager
def web_server(*, hangs: bool = False) -> Iterator[WebServer]:
    told = WebServer()
    if not hangs:
        told.free.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told.requests.append((self.command, self.path, body, dict(self.headers)))
            told.free.wait(60)
            self.send_response(told.status)
            for name, value in {"Content-Length": "0", **told.headers}.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.free.set()
        server.shutdown()
        server.server_close()
        thread.join()
