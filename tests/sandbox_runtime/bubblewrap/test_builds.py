import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_runtime import EnvironmentMissing, RuntimeInterrupted
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.backends.bubblewrap.container import host_name, processes_named
from sandbox_runtime.environments.build_folder import RunBuildCommand
from tests.sandbox_runtime.backend import BackendUnderTest
from tests.sandbox_runtime.gateway_session import Echoing
from tests.sandbox_runtime.suite.acting import shell_output
from tests.support.waiting import eventually

ENV = {"PATH": "/usr/bin:/bin", "GIVEN": "1"}


def builder(backend: BackendUnderTest, gateway_session: Echoing | None = None) -> RunBuildCommand:
    assert isinstance(backend.runtime, BubblewrapBackend)
    backend.runtime._build_session = gateway_session
    return backend.runtime.run_build


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_build_writes_to_its_folder_and_sees_what_it_may_read(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    site, readable, hidden = tmp_path / "site", tmp_path / "readable", tmp_path / "hidden"
    for folder in (site, readable, hidden):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
        folder.chmod(0o777)
    (site / "file").chmod(0o600)
    script = f"""
cat file {readable}/file; cat {hidden}/file; echo new > new; echo again >> file; mkdir -p deep; echo $GIVEN
touch {readable}/x {tmp_path}/x /usr/x; exec 2>/dev/null; setsid sleep 600 &
"""
    status, output = await builder(backend)(["sh", "-c", script], site, ENV, 20, [str(readable)])
    assert status == 0, output
    assert output.startswith(b"sitereadable")
    assert b"1\n" in output
    assert names(site) == ["deep", "file", "new"]
    assert (names(tmp_path), names(readable)) == (["hidden", "readable", "site"], ["file"])
    assert (await builder(backend)(["sh", "-c", "echo more >> new; exit 3"], site, ENV, 20, []))[0] == 3
    assert (site / "new").read_text() == "new\nmore\n"
    assert await backend.left() == []


async def test_a_build_reaches_only_its_gateway_session(backend: BackendUnderTest, tmp_path: Path) -> None:
    code = "import os, socket; print(os.environ['MODELS']); socket.create_connection(('127.0.0.1', 8182)).recv(9)"
    argv = [sys.executable, "-I", "-S", "-c", code]
    site, readable = tmp_path / "site", [sys.prefix, sys.base_prefix]
    site.mkdir()
    status, output = await builder(backend)(argv, site, {**ENV, "MODELS": "none"}, 20, readable)
    assert status == 1
    assert b"ConnectionRefusedError" in output
    gateway_session = Echoing()
    status, output = await builder(backend, gateway_session)(argv, site, ENV, 20, readable)
    assert (status, output) == (0, b"http://127.0.0.1:8181\n")
    await gateway_session.close()


async def test_a_build_whose_container_is_killed_is_interrupted(backend: BackendUnderTest, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    building = asyncio.create_task(builder(backend)(["sh", "-c", "echo > begun; sleep 60"], site, ENV, 50, []))
    await eventually((site / "begun").exists)
    [found] = await backend.runtime.found()
    os.kill(min(processes_named(host_name(found.id))), signal.SIGKILL)
    with pytest.raises(RuntimeInterrupted, match="ended"):
        await building
    await eventually(lambda: not processes_named(host_name(found.id)))
    assert await backend.left() == []


async def test_a_build_that_needs_too_much_memory_fails_with_the_reason(
    backend: BackendUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr("sandbox_runtime.backends.bubblewrap.backend._MEMORY_MB", 64)
    argv = [sys.executable, "-I", "-S", "-c", "kept = b'x' * 2**28"]
    with pytest.raises(EnvironmentMissing, match="more than the 64 MiB of memory of a build"):
        await builder(backend)(argv, site, ENV, 20, [sys.prefix, sys.base_prefix])


async def test_a_sandbox_can_read_its_environment_and_not_change_it(backend: BackendUnderTest, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir(mode=0o755)
    script = "mkdir bin; printf '#!/bin/sh\\necho tool' > bin/tool; chmod 755 bin/tool"
    assert (await builder(backend)(["sh", "-c", script], site, ENV, 20, []))[0] == 0
    mounts = (*backend.prepared.mounts, str(site))
    sandbox = await backend.started(prepared=replace(backend.prepared, mounts=mounts, path=(str(site / "bin"),)))
    assert await shell_output(
        sandbox, "tool; echo x >> $(command -v tool) || rm -rf $(dirname $(command -v tool)); tool"
    )
    assert (site / "bin/tool").read_text() == "#!/bin/sh\necho tool"
    assert os.access(site / "bin/tool", os.X_OK)
