"""What a program in a container cannot do; each attempt is one that succeeds outside."""

import asyncio
from pathlib import Path

import pytest

from sandbox_runtime import EnvironmentMissing, Recipe, ResourceLimits
from sandbox_runtime.backends.docker.backend import IMAGE_LABEL, remove_old
from sandbox_runtime.backends.docker.container import container_name
from sandbox_runtime.backends.docker.docker_command import image_id, run_docker
from tests.sandbox_runtime.backend import BackendUnderTest, parse_request
from tests.sandbox_runtime.suite.acting import SOON_S, output, up

pytestmark = pytest.mark.long


async def test_a_container_has_no_privilege_and_cannot_gain_one(backend: BackendUnderTest) -> None:
    async with up(backend) as sandbox, up(backend) as other:
        status = await output(sandbox, ("cat", "/proc/self/status"))
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert {lines[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert lines["NoNewPrivs"] == "1"
        users = {await output(one, ("id", "-u")) for one in (sandbox, other)}
        assert len(users) == 2 and "0\n" not in users
        for command in (
            *("mount -t tmpfs none /workspace/tmp", "unshare --user true", "cat /proc/1/environ", "ls /proc/1/fd"),
            *("touch /x", "touch /usr/x", "touch /opt/evolverpc/x", "echo x > /proc/sys/kernel/hostname"),
        ):
            done = await sandbox.exec(backend.shell(command))
            assert done.status not in (0, 127), (command, done)
        await sandbox.exec(backend.shell("kill -9 1"))  # is ignored: the first process continues
        assert (await parse_request(await sandbox.endpoint()))[0] == 200


async def test_a_container_has_no_network(backend: BackendUnderTest) -> None:
    async with up(backend) as sandbox:
        done = await sandbox.exec(backend.python("import socket; print([name for _, name in socket.if_nameindex()])"))
        assert done.stdout == b"['lo']\n", done.stderr


async def test_memory_processes_and_disk_are_bounded(backend: BackendUnderTest) -> None:
    limits = ResourceLimits(memory_mb=128, workspace_mb=16, processes=40)
    async with up(backend, limits=limits) as sandbox:
        memory = await sandbox.exec(backend.python("held = bytearray(2**28)"))
        assert memory.status not in (0, None)
        for folder in ("/workspace", "/tmp"):  # noqa: S108  of the container
            disk = await sandbox.exec(backend.shell(f"head -c 40000000 /dev/zero > {folder}/much"))
            assert disk.status not in (0, None), folder
            await output(sandbox, ("rm", "-f", f"{folder}/much"))
        fork = "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(30)\n"
        forked = await sandbox.exec(backend.python(fork, timeout_s=20))
        assert b"BlockingIOError" in forked.stderr, forked
        assert (await parse_request(await sandbox.endpoint()))[0] == 200


async def test_a_container_that_is_removed_by_another_is_reported_as_ended(backend: BackendUnderTest) -> None:
    async with up(backend) as sandbox:
        await asyncio.to_thread(run_docker, "rm", "--force", container_name(sandbox.id))
        assert (await asyncio.wait_for(sandbox.wait(), SOON_S)).kind == "terminated"
    assert await backend.left() == []


async def test_neither_secrets_nor_tokens_are_known_to_the_daemon(backend: BackendUnderTest) -> None:
    async with up(backend, secrets={"KEY": "held-by-the-program"}) as sandbox:
        shown = await asyncio.to_thread(run_docker, "inspect", container_name(sandbox.id))
        assert "held-by-the-program" not in shown
        assert (await sandbox.endpoint()).token not in shown


async def test_old_images_of_ours_are_removed_and_no_others(backend: BackendUnderTest, tmp_path: Path) -> None:
    for name, label in (("ours:old", f"LABEL {IMAGE_LABEL}=1"), ("another:old", "LABEL other=1")):
        (tmp_path / "Dockerfile").write_text(f"FROM scratch\n{label}\n")
        await asyncio.to_thread(run_docker, "build", "--tag", name, str(tmp_path))
    await remove_old()
    assert image_id("ours:old") is not None
    async with asyncio.timeout(30):
        while image_id("ours:old") is not None:  # the daemon counts whole seconds
            await remove_old(hours=0)
    assert image_id("another:old") is not None
    assert backend.prepared.image is not None and image_id(backend.prepared.image) is not None


async def test_a_recipe_that_cannot_be_installed_is_an_error_with_the_end_of_the_output(
    backend: BackendUnderTest,
) -> None:
    with pytest.raises(EnvironmentMissing, match="cannot be built"):
        await backend.runtime.prepare(Recipe(packages=("no-such-package",)), on_progress=lambda _: None)
    assert await backend.left() == []
