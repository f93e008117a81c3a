"""A whole run in bubblewrap's sandboxes: keys stay outside, and money has an end."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gepa_client.cli.sandboxed_program import PROGRAM, Place, place
from tests.gepa_client.exported_page import page_text
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider, completion
from tests.support.forked_client import ForkServer
from tests.support.loops import in_a_thread

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")

CALLS = """
import json, os, urllib.request


def ask():
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "stub", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]
"""


@pytest.fixture
def here(tmp_path: Path, fork_server: ForkServer) -> Iterator[Place]:
    """With a program that calls a model for each row."""
    calling = PROGRAM.replace("    time.sleep(0.005)\n", "    assert ask() == 'hello'\n")
    with place(tmp_path, fork_server, {"calling": {"words.py": CALLS + calling}}) as found:
        yield found


@contextlib.contextmanager
def provider() -> Iterator[StubProvider]:
    """A model provider beside the test, whose every call costs a cent at a dollar per thousand tokens of output."""
    stub = StubProvider()
    stub.answer = completion(5, 10)
    with in_a_thread(stub):
        yield stub


@pytest.mark.timeout(300)  # a run in two parts
def test_the_spend_cap_stops_a_run_within_one_call_and_the_key_is_seen_by_the_provider_alone(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = json.dumps({"stub": [0, 1000]})
    with provider() as stub:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        arguments = here.optimize("capped", "calling", sandbox="bubblewrap")
        capped = here.run(*arguments, "--model-prices", prices, "--max-cost-usd", 0.2)
        assert capped.status == 0, capped.stderr
        called = len(stub.seen)
        assert called in (20, 21), "a cent each"
        finished = capped.events[-1]
        assert finished["event"] == "summary", finished
        run = here.run("runs", "--json").events[0]["id"]

        resumed = here.run("resume", run, "--max-cost-usd", 100, "--model-prices", prices, "--json")
        assert resumed.status == 0, resumed.stderr
        assert {seen.headers["Authorization"] for seen in stub.seen} == {f"Bearer {KEY}"}

    assert here.result("capped")["total_metric_calls"] >= 90, "it continued to the end"
    assert here.sandboxes() == []
    for ran in (capped, resumed):
        assert KEY not in ran.stdout + ran.stderr
    written = [path for folder in (here.folder, here.state) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    assert "stub" in page_text(here.folder / "capped" / "report.html")
