"""`evolverpc service up`, by real processes on a free port. What it refuses, it refuses in one process."""

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

from gepa_service.cli.commands.up import create_first_tenant
from gepa_service.records import open_records
from tests.gepa_service.auth.oidc_issuer import AUDIENCE, oidc_issuer
from tests.gepa_service.cli.in_process import ran

COMMAND = [sys.executable, "-m", "gepa_service.cli"]
WAIT_S = 120.0
SET = ("--public-url", "https://a.example", "--allow-network", "127.0.0.1", "--no-local-repositories")
pytestmark = pytest.mark.timeout(300)


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GEPA_")}


def refused(data: Path, *flags: str, **variables: str) -> str:
    sandbox = () if variables else ("--sandbox", "process")
    arguments = ("up", "--data", str(data), "--port", "0", *sandbox, *flags)
    status, stdout, stderr = ran(*arguments, environment=environment() | variables)
    assert status == 2, stdout + stderr
    return stderr


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


def test_the_first_start_prints_a_key_once_keeps_the_data_private_and_accepts_keys_and_members(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with oidc_issuer() as issuer, up(data, *SET, "--oidc", f"{issuer.url} {AUDIENCE}") as service:
        issuer.add_key("one")
        url, owner = service["url"], {"Authorization": f"Bearer {service['key']}"}
        page = httpx.get(f"{url}/")
        assert "/assets/page.js" in page.text and "strict-transport-security" in page.headers
        hook = {"url": "https://127.0.0.1", "events": ["ping"]}
        assert httpx.post(f"{url}/webhooks", headers=owner, json=hook).status_code == 201
        folder = httpx.post(f"{url}/connect-git", headers=owner, json={"repo_url": str(tmp_path)})
        assert folder.json()["type"].endswith("repository-refused")
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        message = refused(data)
        assert f"a service runs in {data} already" in message
        arguments = ("keys", "create", "default", "--role", "viewer", "--database", str(data / "records.db"))
        _, key, _ = ran(*arguments, environment=environment())
        viewer = {"Authorization": f"Bearer {key.strip()}"}
        assert httpx.get(f"{url}/jobs", headers=viewer).status_code == 200
        signed_in = {"Authorization": f"Bearer {issuer.token('one')}"}
        member = {"issuer": issuer.url, "subject": "ann", "role": "viewer"}
        added = httpx.post(f"{url}/members", headers=owner, json=member)
        assert added.status_code < 300, added.text
        assert httpx.get(f"{url}/jobs", headers=signed_in).status_code == 200
    with contextlib.closing(open_records(str(data / "records.db"))) as records:
        assert create_first_tenant(records) is None, "the next start makes no key"
    (data / "master.key").write_text("A" * 43 + "=\n")
    assert "the database was written with the master key" in refused(data)


def test_a_port_in_use_is_refused_before_a_key_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        message = refused(tmp_path / "data", "--port", port)
    assert f"cannot listen on 127.0.0.1 port {port}" in message
    assert not (tmp_path / "data" / "master.key").exists()


def test_what_is_missing_or_unsafe_is_named_with_what_to_do(tmp_path: Path) -> None:
    data = tmp_path / "data"
    message = refused(data, PATH=str(tmp_path))
    assert "apt install bubblewrap" in message
    assert "--sandbox process (isolates nothing)" in message
    assert "needs an audience" in refused(data, "--oidc", "https://accounts.example.org")
    assert not data.exists()
    assert "give --public-url" in refused(data, "--host", "0.0.0.0")  # noqa: S104  it is refused
    (tmp_path / "open").mkdir(mode=0o755)
    assert f"chmod 700 {tmp_path / 'open'}" in refused(tmp_path / "open")
    (kept := tmp_path / "kept").mkdir(mode=0o700)
    (kept / "records.db").touch()
    assert f"{kept / 'master.key'} is missing" in refused(kept)
    assert not (kept / "master.key").exists()
