"""Commands in a sandbox at Modal, beyond what the suite of all runtimes asks of them."""

from pathlib import Path

from sandbox_runtime import Command, ResourceLimits
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.modal.serving_sandbox import spec
from tests.support.modal_cloud import Cloud


async def test_all_of_the_input_arrives(cloud: Cloud, runtime: Runtime, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096 * 3  # 3 MiB: more than one message holds
    file = tmp_path / "input"
    file.write_bytes(data)
    sandbox = await runtime.start(spec(cloud))
    for stdin in (data, file):
        done = await sandbox.exec(Command(("wc", "-c"), stdin=stdin))
        assert done.stdout.split() == [str(len(data)).encode()]
    unread = await sandbox.exec(Command(("true",), stdin=data))
    assert unread.status == 0


async def test_a_file_has_bounds(cloud: Cloud, runtime: Runtime) -> None:
    sandbox = await runtime.start(spec(cloud, limits=ResourceLimits(workspace_mb=1)))
    done = await sandbox.exec(Command(("sh", "-c", "head -c 3000000 /dev/zero > big; wc -c < big")))
    assert int(done.stdout) == 2**20
