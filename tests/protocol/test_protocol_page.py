"""`docs/protocol.md` is complete, its conversation is real, and its servers in Go keep the contract."""

import asyncio
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import gepa
import pytest

from gepa_client import RemoteAdapter, RpcClient
from gepa_client.conformance import Verdict, run_conformance
from protocol import CAPABILITIES, METHODS, ExampleResult, Limits, Meta, Status, Usage
from protocol.errors import ALL, MethodNotFound, Unauthorized
from sandbox_runtime import running_server
from tests.support.installed import INSTALLED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
HEADINGS = re.findall(r"^#+ (.+)$", PROSE, re.MULTILINE)


def blocks(kind: str, text: str = PAGE) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def test_every_method_capability_status_and_field_of_a_result_is_on_the_page() -> None:
    assert set(CAPABILITIES) <= set(HEADINGS)
    fields = [name for kind in (Limits, Meta, ExampleResult, Usage) for name in kind.model_fields]
    for name in (*METHODS, *get_args(Status), *fields):
        assert re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", PROSE), name


def test_the_table_of_errors_is_the_tree_of_errors() -> None:
    rows = re.findall(r"^\| (-32\d+) \| (\w+) \| (.+?) \|", section("Errors"), re.MULTILINE)
    assert [(int(code), name) for code, name, _ in rows] == [(kind.code, kind.__name__) for kind in ALL]
    retryable = {name for _, name, means in rows if means.endswith("retryable")}
    assert retryable == {kind.__name__ for kind in ALL if kind.default_retryable}


def alike(shown: Any, real: Any) -> bool:
    """`…` on the page stands for text that differs from run to run."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(alike(shown[key], real[key]) for key in shown)
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(alike, shown, real))
    return type(shown) is type(real) and bool(shown == real)


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("bash") is None, reason="needs curl and bash")
def test_the_conversation_is_what_a_server_answers() -> None:
    talk = section("A conversation")
    steps = re.findall(r"^```(sh|json)\n(.*?)^```$", talk, re.MULTILINE | re.DOTALL)
    function = next(text for _, text in steps if text.startswith("rpc()"))
    asked = [(text, steps[at + 1][1]) for at, (kind, text) in enumerate(steps[:-1]) if steps[at + 1][0] == "json"]
    assert len(asked) == 6
    command = [str(Path(sys.executable).with_name("gepa-server")), "--conformance", "--json"]
    with running_server(command) as server:
        for script, answer in asked:
            text = f"{function}\n{script}".replace("http://127.0.0.1:8000/rpc", server.url)
            environment = {**os.environ, "GEPA_TOKEN": server.token}
            done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, check=True, timeout=30)
            assert alike(json.loads(answer), json.loads(done.stdout)), done.stdout


@pytest.fixture
def build(tmp_path: Path) -> Callable[[], Path]:
    """Builds the Go files of a folder; one build at a time, which finds the packages that those before it compiled.

    The builds of all runs have one cache.
    """
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    INSTALLED.mkdir(exist_ok=True)
    cache = INSTALLED / "go-cache"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOCACHE": str(cache)}

    def run() -> Path:
        with cache.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(["go", "build", "-o", "core", "."], cwd=tmp_path, env=environment, check=True, timeout=110)
        return tmp_path / "core"

    return run


def wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "it does not listen"
        else:
            return


async def rows_asked_for(port: int) -> None:
    async with RpcClient(f"http://127.0.0.1:{port}", token="a-token-for-go") as client:
        await client.call("list_examples", {"split": "train"})


@pytest.mark.timeout(300)
def test_the_least_server_in_go_is_optimised(build: Callable[[], Path], tmp_path: Path, unused_tcp_port: int) -> None:
    (tmp_path / "core.go").write_text(*blocks("go"), encoding="utf-8")
    (tmp_path / "go.mod").write_text("module core\n\ngo 1.19\n", encoding="utf-8")
    environment = {**os.environ, "GEPA_TOKEN": "a-token-for-go", "PORT": str(unused_tcp_port)}
    with subprocess.Popen([build()], env=environment) as core:
        try:
            wait_until_listening(unused_tcp_port)
            with RemoteAdapter(f"http://127.0.0.1:{unused_tcp_port}", token="a-token-for-go") as adapter:
                result = gepa.optimize(
                    seed_candidate=adapter.seed_candidate,
                    trainset=[{"text": "my parcel is late", "label": "shipping"}],
                    adapter=adapter,
                    reflection_lm=lambda _prompt: "```\nparcel shipping\n```",
                    max_metric_calls=6,
                )
                assert result.val_aggregate_scores == [0.0, 1.0]
                assert result.best_candidate == {"rules": "parcel shipping"}
            with pytest.raises(MethodNotFound):
                asyncio.run(rows_asked_for(unused_tcp_port))
            with (
                pytest.raises(Unauthorized),
                RemoteAdapter(f"http://127.0.0.1:{unused_tcp_port}", token="another"),
            ):
                pass
        finally:
            core.kill()


@pytest.mark.timeout(300)
async def test_the_go_server_to_copy_passes_every_check_of_the_core(build: Callable[[], Path], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/ports/go", tmp_path, dirs_exist_ok=True)
    shutil.copy(ROOT / "protocol/schema/v1.json", tmp_path)
    token = "a-token-for-go"
    with running_server([str(build())], env={"GEPA_TOKEN": token, "PORT": "0"}) as server:
        report = await run_conformance(server.url, token)
    found = {verdict: {o.check.id for o in report.outcomes if o.verdict is verdict} for verdict in Verdict}
    assert (found[Verdict.FAILED], found[Verdict.WARNED]) == (set(), {"jsonrpc.parse.surrogate"})
    assert len(found[Verdict.PASSED]) >= 130
