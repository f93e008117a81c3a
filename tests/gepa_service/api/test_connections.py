"""A request has to arrive in time, and one without a key is answered before its body is sent."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.cli import api_server
from tests.gepa_service.serving import served_with_key

WAIT_S = 30.0
ARRIVAL_S = 0.6


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[tuple[str, int], str]]:
    """Where the API listens, and the key of an editor."""
    monkeypatch.setattr(api_server, "ARRIVAL_S", ARRIVAL_S)
    with served_with_key(tmp_path, "editor") as (url, key):
        yield ("127.0.0.1", int(url.rpartition(":")[2])), key


def head(length: int, key: str = "") -> bytes:
    given = f"Authorization: Bearer {key}\r\n" if key else ""
    common = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"POST /optimize HTTP/1.1\r\n{common}{given}\r\n".encode()


def until_closed(opened: socket.socket, more: bytes) -> float:
    """Send a little again and again; return the seconds until the connection is closed."""
    began = time.monotonic()
    opened.settimeout(0.05)
    while time.monotonic() - began < WAIT_S:
        try:
            opened.sendall(more)
            if opened.recv(1 << 16) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


@pytest.mark.parametrize("begun", ["nothing", "head", "body", "body without a key"])
def test_a_request_that_arrives_too_slowly_is_ended(api: tuple[tuple[str, int], str], begun: str) -> None:
    address, key = api
    first = {"nothing": b"", "head": b"GET / HTTP/1.1\r\nX-Long: ", "body": head(10**6, key)}.get(begun, head(10**6))
    with socket.create_connection(address, WAIT_S) as opened:
        opened.sendall(first)
        assert ARRIVAL_S * 0.9 <= until_closed(opened, b"" if begun == "nothing" else b" ") < ARRIVAL_S + 5


def test_a_request_without_a_key_is_refused_before_its_body_is_sent(api: tuple[tuple[str, int], str]) -> None:
    with socket.create_connection(api[0], WAIT_S) as opened:
        opened.sendall(head(10**6))
        assert opened.recv(1 << 16).startswith(b"HTTP/1.1 401 ")


def test_a_body_that_takes_longer_because_it_is_large_is_read(api: tuple[tuple[str, int], str]) -> None:
    address, key = api
    with socket.create_connection(address, WAIT_S) as opened:
        opened.sendall(head(400_000, key))
        for _ in range(20):
            time.sleep(ARRIVAL_S / 8)
            opened.sendall(b" " * 20_000)
        assert opened.recv(1 << 16).startswith(b"HTTP/1.1 4"), "it is no JSON, which is found after the whole body"
