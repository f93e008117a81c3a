"""`evolverpc service api`, as a process."""

import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gepa_service.auth.keys import make_key
from gepa_service.cli.service_configuration import ConfigurationError, listening_socket, read_github_app
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import open_records
from tests.support.waiting import until

WAIT_S = 60


@contextlib.contextmanager
def running(folder: Path, *arguments: str, descriptors: int = 1024) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = base64.b64encode(b"m" * 32).decode()
    process = subprocess.Popen(
        [
            *("prlimit", f"--nofile={descriptors}:{descriptors}"),
            *(str(Path(sys.executable).parent / "evolverpc"), "service", "api", "--port", str(port), *arguments),
        ],
        cwd=folder,
        env={**os.environ, "GEPA_SERVICE_MASTER_KEY": master},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.communicate()


def is_up(client: httpx.Client, process: "subprocess.Popen[str]") -> bool:
    assert process.poll() is None, process.communicate()
    with contextlib.suppress(httpx.TransportError):
        return client.get("/health").status_code == 200
    return False


HEAD = b"POST /optimize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
SLOW = [b"GET /heal", HEAD, HEAD + b"Content-Length: 100000\r\n\r\n{", b""]


def open_slow_connections_beyond_all_descriptors(url: str) -> None:
    """Open more connections than the API has descriptors; an ordinary request is answered all the while."""
    address, slow = ("127.0.0.1", int(url.rpartition(":")[2])), list[socket.socket]()
    with contextlib.ExitStack() as stack:
        for number in range(150):
            opened = stack.enter_context(contextlib.closing(socket.create_connection(address, WAIT_S)))
            slow.append(opened)
            opened.sendall(SLOW[number % len(SLOW)])
            if number % 10 == 0:
                assert httpx.get(f"{url}/health", verify=False).status_code == 200, number  # noqa: S501  loopback
                for each in slow:
                    with contextlib.suppress(OSError):  # it was closed
                        each.sendall(b"a")


def test_it_serves_the_keys_of_the_database_beside_slow_connections_and_ends_on_sigterm_with_an_open_stream(
    tmp_path: Path,
) -> None:
    (tmp_path / "service-data").mkdir()
    records = open_records(str(tmp_path / "service-data" / "records.db"))
    records.insert(Tenant(tenant=TENANTS, id="acme", name="acme"))
    key, record = make_key("acme", "test", "editor", None)
    records.insert(record)
    records.close()
    headers = {"Authorization": f"Bearer {key}"}
    with (
        running(tmp_path, "--allow-local", descriptors=128) as (url, process),
        httpx.Client(base_url=url, timeout=WAIT_S) as client,
    ):
        until(lambda: is_up(client, process), WAIT_S)
        open_slow_connections_beyond_all_descriptors(url)
        assert client.get("/jobs", headers=headers).json() == {"items": [], "next": None}
        body = {"repo_url": str(tmp_path), "max_metric_calls": 5}
        job = client.post("/optimize", json=body, headers=headers).json()["job_id"]
        with client.stream("GET", f"/job/{job}/stream", headers=headers) as stream:
            assert stream.status_code == 200
            next(stream.iter_lines())
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) in (0, -signal.SIGTERM)


def test_a_file_of_the_app_that_others_may_read_is_refused_and_no_secret_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    with pytest.raises(ConfigurationError, match="cannot be used"):
        read_github_app(file, b"k" * 32)
    file.write_text('app_id = "1"\nwebhook_secret = "hunter2"\nprivate_key_file = "app.toml"\n')
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_github_app(file, b"k" * 32)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="slug") as refused:
        read_github_app(file, b"k" * 32)
    assert "hunter2" not in str(refused.value)


def test_connections_send_the_body_of_a_response_without_waiting_for_the_acknowledgement_of_its_head() -> None:
    with listening_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname(), timeout=10):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
