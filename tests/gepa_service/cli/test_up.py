"""`gepa-service up`, as people start it: real processes on a free port."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gepa_service.auth.oidc_issuer import AUDIENCE, OidcIssuer

COMMAND = [sys.executable, "-m", "gepa_service.cli"]
WAIT_S = 120.0
pytestmark = pytest.mark.timeout(300)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GEPA_")}


def refused(*arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment() | variables,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def ran(*arguments: str) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=WAIT_S, env=environment(), check=True
    )
    return done.stdout


@contextlib.contextmanager
def up(data: Path, *flags: str) -> Iterator[dict[str, Any]]:
    """Start it; yield the line of JSON that it prints; end it by SIGTERM, which must end everything."""
    command = [*COMMAND, "up", "--data", str(data), "--port", "0", "--sandbox", "process", "--json", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0


def test_the_first_start_prints_a_key_once_and_keeps_the_data_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data) as service:
        answer = httpx.get(f"{service['url']}/usage", headers={"Authorization": f"Bearer {service['key']}"})
        assert answer.status_code == 200
        assert httpx.get(f"{service['url']}/usage").status_code == 401
        assert "/assets/page.js" in httpx.get(f"{service['url']}/").text
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "master.key").stat().st_mode) == 0o600
        message = refused("up", "--data", str(data), "--port", "0", "--sandbox", "process")
        assert f"a service runs in {data} already (process {service['pid']}, {service['url']})" in message
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{service['url']}/health")
    with up(data) as again:
        assert again["key"] is None
        answer = httpx.get(f"{again['url']}/usage", headers={"Authorization": f"Bearer {service['key']}"})
        assert answer.status_code == 200


def test_a_key_that_is_created_while_the_service_runs_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data) as service:
        key = ran("keys", "create", "default", "--role", "viewer", "--database", str(data / "records.db")).strip()
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{service['url']}/jobs", headers=headers).status_code == 200
        assert httpx.get(f"{service['url']}/keys", headers=headers).status_code == 403


def test_tokens_of_an_oidc_issuer_are_accepted_from_a_member(tmp_path: Path) -> None:
    issuer = OidcIssuer()
    issuer.add_key("one")
    try:
        with up(tmp_path / "data", "--oidc", f"{issuer.url} {AUDIENCE}") as service:
            signed_in = {"Authorization": f"Bearer {issuer.token('one')}"}
            assert httpx.get(f"{service['url']}/jobs", headers=signed_in).status_code == 401
            member = {"issuer": issuer.url, "subject": "ann", "role": "viewer"}
            owner = {"Authorization": f"Bearer {service['key']}"}
            added = httpx.post(f"{service['url']}/members", headers=owner, json=member)
            assert added.status_code < 300, added.text
            assert httpx.get(f"{service['url']}/jobs", headers=signed_in).status_code == 200
    finally:
        issuer.close()


def test_an_oidc_issuer_without_an_audience_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    flags = ("--port", "0", "--sandbox", "process", "--oidc", "https://accounts.example.org")
    assert "needs an audience" in refused("up", "--data", str(tmp_path / "data"), *flags)
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_refused_before_a_key_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        message = refused("up", "--data", str(tmp_path / "data"), "--port", port, "--sandbox", "process")
    assert f"cannot listen on 127.0.0.1 port {port}: the port is in use" in message
    assert not (tmp_path / "data" / "master.key").exists()


def test_a_missing_bubblewrap_is_named_with_the_choice_to_do_without(tmp_path: Path) -> None:
    message = refused("up", "--data", str(tmp_path / "data"), "--port", "0", PATH=str(tmp_path))
    assert "bubblewrap is not installed: `apt install bubblewrap`" in message
    assert "--sandbox process (isolates nothing)" in message


def test_an_address_of_the_network_needs_a_public_url(tmp_path: Path) -> None:
    flags = ("--port", "0", "--sandbox", "process", "--host", "0.0.0.0")  # noqa: S104  it is refused
    assert "give --public-url" in refused("up", "--data", str(tmp_path / "data"), *flags)


def test_a_folder_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    message = refused("up", "--data", str(tmp_path / "data"), "--port", "0", "--sandbox", "process")
    assert f"chmod 700 {tmp_path / 'data'}" in message


def test_data_without_its_master_key_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "records.db").touch()
    message = refused("up", "--data", str(data), "--port", "0", "--sandbox", "process")
    assert f"{data / 'master.key'} is missing" in message
    assert not (data / "master.key").exists()


def test_a_wrong_master_key_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data):
        pass
    (data / "master.key").write_text("A" * 43 + "=\n")
    message = refused("up", "--data", str(data), "--port", "0", "--sandbox", "process")
    assert "the database was written with the master key" in message
