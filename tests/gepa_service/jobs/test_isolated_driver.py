"""A hostile optimizer with a valid token of its job reaches nothing of another job, tenant, or of the machine."""

import asyncio
import json
import os
import re
import socket
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any, cast
from unittest.mock import AsyncMock

import pytest

from gepa_client.journal.http_store import HttpStore
from gepa_client.sandboxing.session_interface import NoSandboxes
from gepa_client.settings.run_config import RunConfig
from gepa_service.api.routes import ROUTERS
from gepa_service.jobs import driver_place, optimization, piped_driver
from gepa_service.jobs.driver_place import place_for
from gepa_service.jobs.messages import OptimizeOrder
from gepa_service.model.work import Work
from tests.gepa_service.platform import Platform

HOSTILE = Path(__file__).with_name("hostile.py")
PLANTING = Path(__file__).with_name("planting.py")
SECRET = "sk-of-the-tenant-0123456789"


def routes(*jobs: str) -> list[tuple[str, str]]:
    """Every route of the application, for each of these jobs, and each method of the journal for foreign ones."""
    paths = [
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", ())
        if "/journal/" not in route.path
    ]
    found = [(method, re.sub(r"\{[^}]*\}", job, path)) for method, path in paths for job in jobs]
    methods = ("run", "parts", "write", "update", "claim", "release", "create", "requests", "runs")
    return [
        *dict.fromkeys(found),
        *(("POST", f"/job/{job}/journal/{method}") for job in jobs[1:] for method in methods),
    ]


def isolated(service: Platform, job: Work, folder: Path) -> OptimizeOrder:
    """An order of the job, with its token in the folder."""
    (folder / "token").write_text(service.tokens.issue(job))
    return OptimizeOrder(
        id=job.id, api=service.api, folder=folder, token_file=folder / "token", settings={}, isolated=True
    )


def test_a_hostile_optimizer_reaches_nothing_but_its_own(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = service.begun("acme"), service.begun("rival")
    folder, others = tmp_path / "jobs" / own.id, tmp_path / "jobs" / other.id
    for each in (folder / "results", others / "shared"):
        each.mkdir(parents=True)
    (folder / "job.log").write_text("a log")
    (others / "token").write_text(service.tokens.issue(other))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with ExitStack() as stack:
        servers = [stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(2)]
        own_server, other_server = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in servers)
        listening = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        unix = f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='gepa-'))}/server"
        listening.bind(unix)
        listening.listen()
        abstract = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        abstract.bind(f"\0{other.id}")
        abstract.listen()
        (folder / "1.token").write_text("t")
        (folder / "fleet").write_text(f"{own_server} token-file=1.token\n")
        settings = RunConfig(repo=str(tmp_path), max_metric_calls=5, fleet=folder / "fleet")
        order = isolated(service, own, folder)
        monkeypatch.setattr(driver_place, "DRIVER", (sys.executable, "-P", "-c", HOSTILE.read_text()))
        place = stack.enter_context(place_for(order, NoSandboxes(settings)))  # type: ignore[arg-type]
        api_port = int(service.api.rpartition(":")[2])
        ports = [api_port, int(other_server.rpartition(":")[2]), int(own_server.rpartition(":")[2]), 22, 27017]
        context: dict[str, Any] = {
            "job": own.id,
            "store": place.store,
            "own_server_port": 20_000,
            "files": [
                *map(str, (tmp_path / "records.db", tmp_path / "journals.db", others / "token", folder / "job.log")),
                *map(str, (others, folder / "home", Path(__file__), Path(__file__).parents[3] / "gepa_service")),
                *("/root/.ssh", "/etc/shadow", "/etc/ssh", "/var/log", "/home"),
                *("/proc/1/root/etc/shadow", "/sys/kernel"),
            ],
            "written": [
                *(sys.prefix + "/x", "/etc/x", "/usr/x", str(folder / "shared" / "token"), str(others / "x")),
                *(str(folder / "results" / name) for name in ("run.log", "artifacts", "x")),
            ],
            "hosts": [*(("127.0.0.1", port) for port in ports), ("1.1.1.1", 53), ("169.254.169.254", 80)],
            "sockets": [unix, f"@{other.id}", "/run/docker.sock", "/run/dbus/system_bus_socket"],
            "routes": routes(own.id, other.id),
            "words": [SECRET, service.tokens.issue(other)[:60]],
            "pids": [os.getpid(), os.getppid()],
        }
        with (tmp_path / "hostile.log").open("w+b") as log:
            driver = place.launch("0", log, ())
            assert driver.stdin is not None
            assert driver.stdout is not None
            with driver.stdin as stdin:
                stdin.write(json.dumps(context).encode() + b"\n")
            with driver.stdout as stdout:
                answer = stdout.read()
            status = driver.wait(60)
        assert status == 0, (tmp_path / "hostile.log").read_text()
    found = json.loads(answer)
    assert found.pop("own journal") == 200, "the attempts would be in vain for want of any connection"
    assert found.pop("own server") == "connected"
    assert len(found) > 100
    reached = {name: got for name, got in found.items() if got is not None}
    assert reached == {}


def test_the_process_outside_follows_no_link_that_a_hostile_optimizer_planted(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = service.begun("acme")
    folder, private = tmp_path / "jobs" / job.id, tmp_path / "private"
    for each in (folder, private / "folder"):
        each.mkdir(parents=True)
    (private / "master.key").write_text("the key")
    (private / "folder" / "of_another.json").write_text('{"secret": 1}')
    monkeypatch.setenv("GEPA_STORE_TOKEN_FILE", str(folder / "token"))
    monkeypatch.setattr(driver_place, "DRIVER", (sys.executable, "-P", "-c", PLANTING.read_text()))
    order = isolated(service, job, folder)
    settings = RunConfig(repo=str(tmp_path), max_metric_calls=5)
    run, store = service.journals.run(job.id), HttpStore(order.api, token_file=order.token_file)
    with closing(store):
        for _ in range(2):  # the second one finds what the first one left
            with place_for(order, NoSandboxes(settings)) as place:  # type: ignore[arg-type]
                ended = optimization._driven(order, store, run, place)
            assert (ended.status, ended.program_json) == ("completed", None)
    assert (private / "master.key").read_text() == "the key"
    assert [path.name for path in private.rglob("*")] == ["folder", "master.key", "of_another.json"]
    assert (folder / "results" / "run.log").read_text().count("a line of the driver") == 2


async def test_a_driver_whose_place_ended_by_an_error_was_killed(tmp_path: Path) -> None:
    async def begin(*_: object) -> "asyncio.Future[int]":
        ending = asyncio.get_running_loop().create_future()
        ending.set_exception(ConnectionError("the place is gone"))
        return ending

    with (tmp_path / "log").open("wb") as log:
        driver = await asyncio.to_thread(piped_driver.launcher(begin, AsyncMock(), {}), "0", log, ())
    assert await asyncio.to_thread(driver.wait, 10) == piped_driver.KILLED
    with cast("IO[bytes]", driver.stdin), cast("IO[bytes]", driver.stdout):
        driver.kill()
