"""A hostile program gets nothing, and the sandbox beside it continues to work."""

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rpc_server import worker
from tests.sandbox_runtime.gateway.stub_provider import KEY
from tests.sandbox_runtime.hostile.setup import PROGRAM, HostileSetup, hostile_setup

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: apt install bubblewrap"
)


def attempts(*modules: str) -> list[str]:
    """Return the names of the attempts of these modules, in their order."""
    found = []
    for module in modules:
        lines = (PROGRAM / f"{module}.py").read_text().splitlines()
        found += [line.split("(")[0][4:] for at, line in enumerate(lines) if lines[at - 1] == "@attempt"]
    return found


FLOODS = [*attempts("floods"), "end_the_parent"]
OTHERS = attempts("reading", "processes", "privileges", "writing", "network", "keys", "forging")


@pytest.fixture
async def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostileSetup]:
    monkeypatch.setenv("CANARY_SECRET", "canary of the host's environment")
    async with hostile_setup(tmp_path) as hostile:
        yield hostile


async def test_no_attempt_escapes_the_sandbox(hostile: HostileSetup) -> None:
    ours = {path: path.read_bytes() for path in Path(worker.__file__).parent.glob("*.py")}

    results = await hostile.evaluate(OTHERS)

    assert len(OTHERS) >= 30
    kept = dict(zip(OTHERS, results, strict=True))
    out = [f"{name}: {result}" for name, result in kept.items() if result["score"] != 1.0]
    assert not out, "these escaped, or did not finish:\n" + "\n".join(out)
    text = json.dumps(results)
    assert hostile.canary not in text.replace(str(hostile.example["journal"]), "")
    assert KEY not in text
    assert {path: path.read_bytes() for path in ours} == ours
    assert hostile.journal.read_text() == hostile.canary
    git = await hostile.containers[0].exec_bash("ls .git/hooks 2>/dev/null; git status --short; git fsck")
    assert git.status == 0 and b"post-checkout" not in git.stdout, git
    for container in (0, 1):
        assert [result["score"] for result in await hostile.evaluate(["honest"] * 4, container)] == [1.0] * 4
    assert any("169.254.169.254" in getattr(event, "what", "") for event in hostile.events)


@pytest.mark.timeout(300)
async def test_a_flood_ends_with_its_example_and_does_not_affect_the_next_one(hostile: HostileSetup) -> None:
    for flood in FLOODS:
        [result] = await hostile.evaluate([flood])

        assert result["status"] in ("ok", "timeout", "program_error"), flood
        assert not str(result.get("output")).startswith("got"), (flood, result)
        beside, after = await asyncio.gather(hostile.evaluate(["honest"] * 4, 1), hostile.evaluate(["honest"] * 4))
        assert [one["score"] for one in (*beside, *after)] == [1.0] * 8, flood
        left = await hostile.containers[0].exec_bash("ps ax | wc -l")
        assert left.status == 0 and int(left.stdout) < 40, (flood, left)


def test_the_attempts_succeed_without_a_sandbox(tmp_path: Path) -> None:
    """An attempt that could not succeed anywhere would prove nothing."""
    sys.path.insert(0, str(PROGRAM))
    try:
        import network
        import processes
        import reading
        import writing

        canary = tmp_path / "canary"
        canary.write_text("x")
        example = {"canary_file": str(canary), "canary_name": "canary", "journal": str(canary)}
        assert reading.read_canary(example)
        assert processes.others()
        assert writing.write_the_journal(example)
        with socket.create_server(("127.0.0.1", 0)) as service:
            assert network.host_loopback({"port": service.getsockname()[1]})
    finally:
        sys.path.remove(str(PROGRAM))
        for name in ("network", "processes", "reading", "registry", "writing"):
            sys.modules.pop(name, None)
