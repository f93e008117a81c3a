"""What the tests of the bubblewrap backend start in sandboxes, and how they see that nothing of one is left."""

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox_runtime import Command, CommandResult, Recipe, Runtime, Sandbox, SandboxSpec
from sandbox_runtime.backends.bubblewrap.container import host_name
from sandbox_runtime.backends.records import SandboxRecords

ANSWERING = """
import os, socket
listener = socket.socket(fileno=int(os.environ["GEPA_LISTEN"].removeprefix("fd:")))
print("listening", flush=True)
while True:
    connection = listener.accept()[0]
    while not connection.recv(65536).endswith(b"\\r\\n\\r\\n"):
        pass
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    connection.close()
"""
"""The least of a server: it answers everything with 200."""


def python(code: str, **others: Any) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", code), **others)


def shell(script: str, **others: Any) -> Command:
    return Command(("sh", "-c", script), **others)


async def spec_of(runtime: Runtime, **changes: Any) -> SandboxSpec:
    prepared = await runtime.prepare(Recipe(), on_progress=lambda _: None)
    return replace(SandboxSpec(main=python(ANSWERING), prepared=prepared, ready_s=30), **changes)


async def started(runtime: Runtime, **changes: Any) -> Sandbox:
    return await runtime.start(await spec_of(runtime, **changes))


async def shell_output(sandbox: Sandbox, script: str) -> str:
    """Return the output of a script, which must succeed."""
    done = await sandbox.exec(shell(script))
    assert done.status == 0, done
    return done.stdout.decode().strip()


async def result(sandbox: Sandbox, script: str, timeout_s: float = 20) -> CommandResult:
    return await sandbox.exec(shell(script, timeout_s=timeout_s))


def left_of(records: SandboxRecords, sockets: Path, *ids: str) -> list[str]:
    """Return everything that is left of any sandbox of these records, and processes of the sandboxes with these ids.

    A process belongs to a sandbox by its control group, or by its command line if it makes the sandbox; both have the
    sandbox's own name. If the latter have ended, the kernel has ended all others.
    """
    left = [f"record or sockets {id_}" for id_ in {path.name for path in sockets.iterdir()}]
    left += [f"record {record.id}" for record in records.all()]
    names = [host_name(id_).encode() for id_ in ids]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line, group = ((process / name).read_bytes() for name in ("cmdline", "cgroup"))
            if any(name in line + group for name in names):
                left.append(f"process {process.name}: {line!r}")
    return left


def groups_of(id_: str) -> list[Path]:
    folders = (folder for folder, _, _ in os.walk("/sys/fs/cgroup"))  # passes over groups that end meanwhile
    return [Path(folder) for folder in folders if folder.endswith(f"/gepa-{id_}")]
