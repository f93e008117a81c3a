"""What a program in a sandbox cannot do; each attempt is one that succeeds outside."""

import os
import shutil
from pathlib import Path

import pytest

import rpc_server
from sandbox_runtime import ResourceLimits
from tests.sandbox_runtime.backend import BackendUnderTest
from tests.sandbox_runtime.stub_server import SOURCE
from tests.sandbox_runtime.suite.acting import groups_of, result, shell_output

WRITABLE = ("/workspace", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  inside


async def test_a_sandbox_has_no_privilege_and_cannot_gain_one(backend: BackendUnderTest) -> None:
    sandbox = await backend.started(setup=(backend.shell("grep -E '^(Cap|NoNew)' /proc/self/status"),))
    assert await shell_output(sandbox, "id -u; id -g; id -G") == "1000\n1000\n1000"
    status = await shell_output(sandbox, "cat /proc/self/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {lines[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert lines["NoNewPrivs"] == "1"
    assert (await sandbox.logs()).count("0" * 16) == 5
    for command in ("mount -t tmpfs none /tmp", "umount /proc", "hostname other", "mknod /tmp/null c 1 3"):
        assert (await result(sandbox, command)).status not in (0, 127), command


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each sandbox a user of its own")
async def test_a_sandbox_that_root_starts_runs_as_a_user_of_its_own(backend: BackendUnderTest) -> None:
    first, second = await backend.started(), await backend.started()
    users = set()
    for sandbox in (first, second):
        uid_map = (await shell_output(sandbox, "cat /proc/self/uid_map")).split()
        assert uid_map[2] == "1"
        pids = {int(pid) for group in groups_of(sandbox.id) for pid in (group / "cgroup.procs").read_text().split()}
        (user,) = {_real_user(pid) for pid in pids} - {None}
        assert user >= 0x7000_0000
        users.add(user)
    assert len(users) == 2


def _real_user(pid: int) -> int | None:
    """None if the process has ended, as that of a command that has answered does."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:")))


async def test_a_sandbox_neither_reads_nor_writes_files_of_the_host(backend: BackendUnderTest, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    sandbox = await backend.started()
    for path in (secret, Path.home() / ".ssh", "/etc/shadow", "/etc/machine-id", "/var/log", "/run/systemd", "/sys"):
        assert (await result(sandbox, f"cat {path} || ls {path}")).status != 0, path
    assert "private" not in await shell_output(sandbox, "ls /etc/ssl")  # keys, beside the certificates
    mounted = [line.split()[1] for line in (await shell_output(sandbox, "cat /proc/mounts")).splitlines()]
    writable = await shell_output(
        sandbox, f"for place in {' '.join(mounted)}; do test -w $place && echo $place; done; true"
    )
    assert {place for place in writable.split() if not place.startswith("/dev/")} == {*WRITABLE[:3]}
    for path in ("/x", "/usr/x", "/etc/x", "/dev/x", "/proc/sys/kernel/hostname", rpc_server.__path__[0]):
        assert (await result(sandbox, f"touch {path}/x || echo x > {path}")).status != 0, path


async def test_a_sandbox_sees_only_its_own_processes(backend: BackendUnderTest) -> None:
    sandbox = await backend.started()
    seen = await shell_output(sandbox, "ls /proc | grep -c '^[0-9]'")
    assert int(seen) <= 5
    assert (await result(sandbox, f"kill -0 {os.getpid()}")).status != 0
    server = backend.python("import os; print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))")
    assert (await sandbox.exec(server)).stdout == b"[1, 2]\n"


async def test_a_server_can_neither_end_nor_inspect_the_first_process(backend: BackendUnderTest) -> None:
    attack = """
import os, signal
for number in signal.valid_signals():
    os.kill(1, number)
for name in ("mem", "environ", "fd"):
    print(name, os.access("/proc/1/" + name, os.R_OK), flush=True)
"""
    sandbox = await backend.started(main=backend.python(attack + SOURCE.decode()))
    assert await shell_output(sandbox, "echo still there") == "still there"
    assert {"mem False", "environ False", "fd False"} <= set((await sandbox.logs()).splitlines())


async def test_the_size_of_written_files_is_bounded_in_every_folder(backend: BackendUnderTest) -> None:
    sandbox = await backend.started(limits=ResourceLimits(workspace_mb=16))
    for place in WRITABLE:
        done = await result(sandbox, f"head -c 20000000 /dev/zero > {place}/big")
        assert b"No space left" in done.stderr, place
        assert int(await shell_output(sandbox, f"wc -c < {place}/big; rm {place}/big")) <= 16 * 2**20


async def test_memory_is_bounded_for_one_process_and_for_all(backend: BackendUnderTest) -> None:
    sandbox = await backend.started(limits=ResourceLimits(memory_mb=128))
    done = await sandbox.exec(backend.python("print(len(bytearray(b'x') * (200 * 2**20)))"))
    if "memory" in backend.runtime._context.groups.missing_controllers:  # type: ignore[union-attr]
        assert b"MemoryError" in done.stderr
    else:
        assert done.status == 137
        hog = "import time; kept = bytearray(b'x') * (60 * 2**20); time.sleep(2)"
        together = f"""
import subprocess, sys
hogs = [subprocess.Popen([sys.executable, "-I", "-S", "-c", {hog!r}]) for _ in range(4)]
print([hog.wait() for hog in hogs])
"""
        done = await sandbox.exec(backend.python(together))
        assert done.status == 137 or b"-9" in done.stdout
    assert await shell_output(sandbox, "echo still there") == "still there"


async def test_processes_are_bounded_and_a_server_at_its_bound_leaves_room_for_commands(
    backend: BackendUnderTest,
) -> None:
    flood = """
import os, time
count = 0
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
except BlockingIOError:
    pass
print("forked", count, flush=True)
"""
    sandbox = await backend.started(limits=ResourceLimits(processes=20), main=backend.python(flood + SOURCE.decode()))
    count = int((await sandbox.logs()).split()[1])
    assert 10 < count <= 20
    assert await shell_output(sandbox, "(echo still there) | cat") == "still there"
    done = await sandbox.exec(backend.python(flood))
    assert 10 < int(done.stdout.split()[1]) <= 64


async def test_a_sandbox_may_have_sandboxes_of_its_own(backend: BackendUnderTest) -> None:
    if shutil.which("bwrap", path="/usr/bin:/usr/local/bin") is None:
        pytest.skip("bwrap is not in /usr: sandboxes see no other")
    sandbox = await backend.started()
    nested = "bwrap --unshare-user --unshare-pid --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --disable-userns"
    assert await shell_output(sandbox, f"{nested} sh -c 'echo $$ > /tmp/x; cat /tmp/x'") == "2"
    assert (await result(sandbox, f"{nested} touch /workspace/x")).status != 0
