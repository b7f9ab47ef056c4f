"""Requests to addresses that somebody typed do not reach what is inside."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

from django_reliable_jobs import web_requests
from django_reliable_jobs.web_requests import RequestFailed, is_public, send
from tests.http_server import web_server


def answers(monkeypatch: pytest.MonkeyPatch, *lookups: list[str]) -> list[str]:
    """Let each look-up of a name answer with the next addresses; return the names that were looked up."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *rest: Any, **named: Any) -> list[Any]:
        if any(host in addresses for addresses in lookups):
            return real(host, port, *rest, **named)
        asked.append(host)
        addresses = lookups[min(len(asked), len(lookups)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(web_requests.socket, "getaddrinfo", getaddrinfo)
    return asked


@contextmanager
def dripping_server(beginning: bytes) -> Iterator[int]:
    """A server that answers with `beginning`, and then with a byte every few milliseconds, until it is left."""
    is_over = threading.Event()

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(beginning)
            while not is_over.wait(0.01):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            is_over.set()
            thread.join()


def refusal(url: str, **options: Any) -> str:
    with pytest.raises(RequestFailed) as caught:
        send("POST", url, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::a9fe:a9fe",
        "fec0::1",
    ],
)
def test_an_address_inside_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_an_address_outside_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com",
        "example.com",
        "http://",
        "http://user:secret@example.com/",
        "http://example.com:99999/",
        "http://[::1",
        "http://example.com/a secret",
        "http://example.com/?caf\u00e9",
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    assert "address" in refusal(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "169.254.169.254",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0",
        "[::ffff:169.254.169.254]",
        "localhost",
    ],
)
def test_an_address_inside_is_refused_however_it_is_written(host: str) -> None:
    assert "not a public address" in refusal(f"http://{host}/latest/meta-data/")


def test_a_name_with_one_address_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, ["1.1.1.1", "10.0.0.1"])
    assert refusal("http://example.com/") == (
        "example.com is 10.0.0.1, which is not a public address; it was not connected to"
    )


def test_a_name_that_is_inside_at_the_second_look_up_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, ["1.1.1.1"], ["127.0.0.1"])
    connected: list[Any] = []

    def create_connection(address: Any, **_: Any) -> Any:
        connected.append(address)
        raise OSError("no route")

    monkeypatch.setattr(web_requests.socket, "create_connection", create_connection)
    assert "no route" in refusal("https://example.com/")
    assert (asked, connected) == (["example.com"], [("1.1.1.1", 443)])
    assert "not a public address" in refusal("https://example.com/"), "it is judged anew each time"


def test_the_host_of_the_url_is_named_to_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as server:
        answers(monkeypatch, ["127.0.0.1"])
        url = f"http://hooks.example.com:{server.port}/a/b?c=d"
        assert send("POST", url, body=b"hello", headers={"X-Mine": "1"}, allow_private=True) == 200
    [(method, path, body, headers)] = server.requests
    assert (method, path, body) == ("POST", "/a/b?c=d", b"hello")
    assert headers["Host"] == f"hooks.example.com:{server.port}"
    assert headers["X-Mine"] == "1"


@pytest.mark.parametrize("target", ["http://169.254.169.254/", "http://[::1]/", "https://example.com/"])
def test_a_redirect_is_a_failure_and_not_followed(target: str) -> None:
    with web_server() as server:
        server.status, server.headers = 302, {"Location": target}
        assert refusal(server.url, allow_private=True) == "127.0.0.1 answered 302: redirects are not followed"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_an_answer_without_success_is_a_failure(status: int) -> None:
    with web_server() as server:
        server.status = status
        assert refusal(server.url, allow_private=True) == f"127.0.0.1 answered {status}"


def test_who_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_requests, "SECONDS", 0.05)
    with web_server(hangs=True) as server:
        assert "did not answer: TimeoutError" in refusal(server.url, allow_private=True)


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_an_answer_that_comes_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch, beginning: bytes) -> None:
    monkeypatch.setattr(web_requests, "ANSWER_SECONDS", 0.3)
    with dripping_server(beginning) as port:
        assert refusal(f"http://127.0.0.1:{port}/", allow_private=True) == (
            "127.0.0.1 did not answer: TimeoutError: its answer took longer than 0.3 s"
        )


def test_an_answer_without_end_is_read_in_part() -> None:
    with dripping_server(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * web_requests.MAX_ANSWER * 2) as port:
        assert send("POST", f"http://127.0.0.1:{port}/", allow_private=True) == 200


def test_of_a_failure_that_is_read_in_part_no_connection_stays_open() -> None:
    with dripping_server(b"HTTP/1.1 500 No\r\n\r\n" + b"x" * web_requests.MAX_ANSWER * 2) as port:
        with pytest.raises(RequestFailed, match="answered 500") as failed:  # kept, as a log keeps it
            send("POST", f"http://127.0.0.1:{port}/", allow_private=True)
        left = [each.raddr.port for each in psutil.Process().net_connections("tcp") if each.raddr]
        assert left.count(port) == 0, failed


def test_a_proxy_that_the_environment_names_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as proxy, web_server() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert send("POST", server.url, allow_private=True) == 200
    assert (len(proxy.requests), len(server.requests)) == (0, 1)


def test_a_header_can_not_be_smuggled_in() -> None:
    with web_server() as server:
        assert "did not answer" in refusal(server.url + "\r\nX-Evil: 1", allow_private=True) or not server.requests
        assert "did not answer" in refusal(server.url, headers={"X": "1\r\nX-Evil: 1"}, allow_private=True)
    assert all("X-Evil" not in headers for *_, headers in server.requests)
