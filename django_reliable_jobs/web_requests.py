"""One HTTP request to an address that a project or an operator has typed: it must not reach what is inside.

The name is looked up once, every address that it has is judged, and the connection goes to the very address that was
judged: a name that answers differently the next time changes nothing. Redirects are not followed. Pure standard
library: no settings, no Django.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import SplitResult, urlsplit

MAX_ANSWER = 64 * 1024  # bytes that are read of an answer; nobody looks at them
SECONDS = 10.0  # for each step: the connection, each part of the answer
ANSWER_SECONDS = 20.0  # for the whole answer: one that comes byte by byte is in time with each of its parts

_NATIVE = ipaddress.ip_network("2000::/3")  # whatever else there is of IPv6 is local, reserved or a disguise


class RequestFailed(Exception):
    """The request was refused before it was sent, or was not answered with success."""


def send(
    method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None, allow_private: bool = False
) -> int:
    """Send one request and return its status, 200 to 299. Raises RequestFailed, which says why."""
    parts = _checked(url)
    address = _judged_address(parts, allow_private=allow_private)
    connection = _connection(parts, address)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.connect()
        with _cut_off_after(ANSWER_SECONDS, connection.sock):
            connection.request(method, target, body=body or None, headers=dict(headers or {}))
            with connection.getresponse() as answer:  # one that was read in part would hold its connection
                answer.read(MAX_ANSWER)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise RequestFailed(f"{parts.hostname} did not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if 300 <= answer.status < 400:
        raise RequestFailed(f"{parts.hostname} answered {answer.status}: redirects are not followed")
    if not 200 <= answer.status < 300:
        raise RequestFailed(f"{parts.hostname} answered {answer.status}")
    return answer.status


@contextmanager
def _cut_off_after(seconds: float, sock: socket.socket) -> Iterator[None]:
    """Raise TimeoutError if what is within takes longer: the connection is shut down meanwhile."""
    is_over = threading.Event()

    def cut_off() -> None:
        is_over.set()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # beneath TLS, which would wait for the other side

    timer = threading.Timer(seconds, cut_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if is_over.is_set():
            raise TimeoutError(f"its answer took longer than {seconds:g} s")


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise RequestFailed(f"the address can't be read: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise RequestFailed("the address must begin with http:// or https://, and name a host and no user")
    if not all("!" <= each <= "~" for each in parts.path + parts.query):
        raise RequestFailed("the address holds a character that must be written with %")
    return parts


def _judged_address(parts: SplitResult, *, allow_private: bool) -> str:
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = str(parts.hostname)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RequestFailed(f"{host} has no address: {error}") from error
    addresses = [str(each[4][0]) for each in found]
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise RequestFailed(f"{host} is {address}, which is not a public address; it was not connected to")
    return addresses[0]


def is_public(address: str) -> bool:
    """Return whether everybody can reach this IP address: not loopback, private, link-local, reserved, multicast."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or _behind_nat64(found)
        if inner is not None:
            return is_public(str(inner))
        if found.teredo is not None or found not in _NATIVE:
            return False
    return found.is_global and not found.is_multicast


def _behind_nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _connection(parts: SplitResult, address: str) -> http.client.HTTPConnection:
    if parts.scheme == "https":
        return _PinnedTLS(parts, address)
    return _Pinned(parts, address)


class _Pinned(http.client.HTTPConnection):
    """Speaks to `address` in the name of the URL's host."""

    def __init__(self, parts: SplitResult, address: str) -> None:
        super().__init__(str(parts.hostname), parts.port, timeout=SECONDS)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), timeout=SECONDS)


class _PinnedTLS(_Pinned):
    default_port = http.client.HTTPS_PORT

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)
