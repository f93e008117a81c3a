"""Listen addresses from environment variables, and the token header that passes a proxy."""

import json
import os
import socket
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from evolverpc_common.settings.sources import SettingsError
from rpc_server.cli.listen_endpoint import apply_listen_address
from rpc_server.settings import Settings
from tests.rpc_server.conftest import Refusal
from tests.rpc_server.server_process import asked, ready, server_process
from tests.support.forked_client import ForkServer

REPORTS_VARIABLES_AND_SOCKETS = """
import os, stat
seed_candidate = {"system": "x"}
def run(example, candidate):
    return 1
def score(example, output):
    names = [name for name in os.environ if name.startswith("GEPA_")]
    kinds = [os.fstat(int(number)).st_ino for number in os.listdir("/proc/self/fd") if _is_socket(int(number))]
    return 1.0, str([names, kinds])
def _is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False
"""


READS_ENVIRONMENTS = """
import glob
seed_candidate = {"system": "x"}
def run(example, candidate):
    return [path for path in glob.glob("/proc/[0-9]*/environ") if example.encode() in _read(path)]
def score(example, output):
    return 1.0
def _read(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""
"""


def listening_socket(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


async def test_an_inherited_unix_socket_is_served_and_neither_it_nor_the_variables_reach_the_program(
    tmp_path: Path,
) -> None:
    (tmp_path / "reports.py").write_text(REPORTS_VARIABLES_AND_SOCKETS)
    path = tmp_path / "a socket"
    with listening_socket(path) as sock:
        given = {"GEPA_LISTEN": f"fd:{sock.fileno()}", "GEPA_ALLOWED_HOSTS": "box.example, other.example"}
        flags = ("--json", "--program", "reports.py", "--allowed-hosts", "own.example")
        async with server_process(tmp_path, *flags, pass_fds=[sock.fileno()], GEPA_TOKEN="t", **given) as process:

            def connector() -> aiohttp.UnixConnector:
                return aiohttp.UnixConnector(str(path))

            # Its backlog keeps what comes before the server accepts.
            status, _ = await asked(
                "http://localhost/rpc", "discover", {}, connector=connector(), **{"X-Gepa-Token": "t"}
            )
            assert status == 200
            assert (await ready(process))[
                "url"
            ] == f"http+unix://{str(path).replace('/', '%2F').replace(' ', '%20')}/rpc"
            evaluation = {"candidate": {"system": "x"}, "batch": [{"id": "0", "data": 1}]}
            let_in = ("127.0.0.1:80", "own.example", "box.example", "other.example")
            for host, expected in {**dict.fromkeys(let_in, 200), "attacker.example": 403}.items():
                headers = {"Host": host, "Authorization": "Bearer t"}
                status, answer = await asked(
                    "http://localhost/rpc", "evaluate", evaluation, connector=connector(), **headers
                )
                assert status == expected
                if status == 200:
                    result = answer["result"]["results"][0]
                    names, sockets = json.loads(result["feedback"].replace("'", '"'))
                    assert names == []
                    assert os.fstat(sock.fileno()).st_ino not in sockets
        assert path.exists()


async def test_no_process_shows_the_token_in_its_environment(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(READS_ENVIRONMENTS)
    token, shown = f"t{uuid.uuid4().hex}", uuid.uuid4().hex
    flags = ("--json", "--program", "program.py", "--env", f"SHOWN={shown}")
    async with server_process(tmp_path, *flags, GEPA_TOKEN=token) as process:
        batch = [{"id": "0", "data": token[:-1]}, {"id": "1", "data": shown}]
        params = {"candidate": {"system": "x"}, "batch": batch}
        _, answer = await asked((await ready(process))["url"], "evaluate", params, Authorization=f"Bearer {token}")
    hidden, found = (result["output"] for result in answer["result"]["results"])
    assert hidden == []
    assert found != []  # what a process was started with can be read


async def test_the_token_of_the_process_that_starts_a_server_goes_before_a_configured_file(
    tmp_path: Path, refusal: Refusal
) -> None:
    (tmp_path / "program.py").write_text(REPORTS_VARIABLES_AND_SOCKETS)
    (tmp_path / "gepa.toml").write_text('program = "program.py"\ntoken_file = "token"\n')
    async with server_process(tmp_path, "--json", GEPA_TOKEN="t", GEPA_LISTEN="127.0.0.1:0") as process:
        status, _ = await asked((await ready(process))["url"], "discover", {}, Authorization="Bearer t")
    assert status == 200
    assert not (tmp_path / "token").exists()
    printed = refusal(tmp_path, "--token-file", "token", GEPA_TOKEN="t", GEPA_LISTEN="127.0.0.1:0")
    assert "leave --token-file out" in printed


async def test_the_tokens_own_header_alone_counts_if_it_is_present(
    tmp_path: Path, unused_tcp_port: int, fork_server: ForkServer
) -> None:
    where = f"127.0.0.1:{unused_tcp_port}"
    (tmp_path / "gepa.toml").write_text('host = "192.0.2.1"\nport = 1\nprogram = "reports.py"')
    (tmp_path / "reports.py").write_text(REPORTS_VARIABLES_AND_SOCKETS)
    with fork_server.running_server(env={"GEPA_LISTEN": where, "GEPA_TOKEN": "t"}, cwd=tmp_path) as endpoint:
        assert endpoint.url == f"http://{where}/rpc"
        for headers, expected in (
            ({"X-Gepa-Token": "t"}, 200),
            ({"X-Gepa-Token": "t", "Authorization": "Bearer of-the-proxy"}, 200),
            ({"X-Gepa-Token": "wrong", "Authorization": "Bearer t"}, 401),
            ({"X-Gepa-Token": "", "Authorization": "Bearer t"}, 401),
            ({"X-Gepa-Token": "Bearer t"}, 401),
            ({"Authorization": "Bearer t"}, 200),
        ):
            assert (await asked(endpoint.url, "discover", {}, **headers))[0] == expected, headers


@pytest.mark.parametrize(
    ("flags", "where", "reported"),
    [
        ({"port": 1}, "fd:3", "GEPA_LISTEN is set, and --port given"),
        ({}, "fd:x", "the number of a descriptor"),
        ({}, "fd:99999", "is not a socket"),
        ({}, "127.0.0.1", "HOST:PORT"),
        ({}, "127.0.0.1:65536", "HOST:PORT"),
    ],
)
def test_an_invalid_or_contradicted_listen_address_is_refused(flags: dict[str, Any], where: str, reported: str) -> None:
    with pytest.raises(SettingsError, match=reported):
        apply_listen_address(Settings(program="x"), {"GEPA_LISTEN": where}, flags)


def test_an_address_in_brackets_is_one_of_ipv6() -> None:
    settings, _ = apply_listen_address(
        Settings(program="x"), {"GEPA_LISTEN": "[::1]:80", "GEPA_ALLOWED_HOSTS": "a,,b "}, {}
    )
    assert (settings.host, settings.port, settings.allowed_hosts) == ("::1", 80, ("a", "b"))


def test_an_inherited_socket_that_does_not_listen_is_refused() -> None:
    deaf = socket.socket()
    with pytest.raises(SettingsError, match="the socket does not listen"):
        apply_listen_address(Settings(program="x"), {"GEPA_LISTEN": f"fd:{deaf.detach()}"}, {})
