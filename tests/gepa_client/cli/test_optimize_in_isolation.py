"""Whole runs in bubblewrap's sandboxes: hostile programs change nothing, keys stay outside, and money has an end."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gepa_client.cli.sandboxed_program import PROGRAM, Place, place
from tests.gepa_client.exported_page import page_text
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider, completion
from tests.sandbox_runtime.hostile.setup import PROGRAM as ATTEMPTS
from tests.support.forked_client import ForkServer
from tests.support.loops import in_a_thread
from tests.support.rounds import rounds

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")

HOSTILE = """
import random
import tempfile
import zlib
from pathlib import Path

import floods
import forging
import network
import privileges
import processes
import reading
import writing
from registry import ATTEMPTS

NAMES = [name for name in sorted(ATTEMPTS) if name not in ("public_network", "dns", "private_network", "link_local")]


def attempt(seed, row):
    begun = Path(tempfile.gettempdir()) / f"begun-{zlib.crc32(row.encode())}"
    if begun.exists():  # this attempt ended the process of its own row, which runs again in the same jail
        return
    begun.touch()
    targets = {"canary": "-", "canary_name": "-", "canary_file": "/etc/shadow", "journal": "/etc/shadow", "key": "-"}
    try:
        name = random.Random(f"{seed} {row}").choice(NAMES)
        ATTEMPTS[name]({**targets, "abstract": "-", "rebound": "-", "port": 1})
    except Exception:
        pass
    begun.unlink()
"""

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
def here(tmp_path: Path, fork_server: ForkServer, request: pytest.FixtureRequest) -> Iterator[Place]:
    """`param`: the seed of the hostile program's attempts; 1 draws a memory bomb, fork bombs and a full disk."""
    seed = getattr(request, "param", 1)
    call = f"    attempt({seed}, example['word'] + ' for ' + candidate['text'])\n"
    hostile = PROGRAM.replace("    time.sleep(0.005)\n", call)
    calling = PROGRAM.replace("    time.sleep(0.005)\n", "    assert ask() == 'hello'\n")
    files = {
        path.name: path.read_text() for path in ATTEMPTS.glob("*.py") if path.name not in ("program.py", "keys.py")
    }
    programs = {
        "hostile": {"words.py": HOSTILE + hostile, **files},
        "calling": {"words.py": CALLS + calling},
    }
    with place(tmp_path, fork_server, programs) as found:
        yield found


def isolated(here: Place, output: str, program: str, *more: object) -> list[object]:
    """The arguments of a run in two bubblewrap sandboxes."""
    arguments = here.optimize(output, program)
    arguments[arguments.index("process")] = "bubblewrap"
    return [*arguments, *more]


def plain(here: Place, output: str) -> dict[str, object]:
    """The result of a run of the honest program, which is the same without isolation."""
    ended = here.run(*here.optimize(output))
    assert ended.status == 0, ended.stderr
    return here.result(output)


@pytest.mark.long
@pytest.mark.repeated
@pytest.mark.parametrize("here", [1 + each for each in rounds(10)], indirect=True)
@pytest.mark.timeout(300)  # two runs, one of which does all the damage it can
def test_a_hostile_program_changes_nothing_in_its_runs_result(here: Place) -> None:
    hostile = here.run(*isolated(here, "hostile", "hostile", "--sandbox-memory-mb", 512))

    assert hostile.status == 0, hostile.stderr
    failed = json.loads(here.run("show", "last", "--json").stdout)["failed_examples"] or {"failed": 0, "groups": []}
    found, honest = here.result("hostile"), plain(here, "honest")
    # An attempt that ends its jail leaves no trace in the next one, and ends that too: its row fails, without output.
    assert {group["type"] for group in failed["groups"]} <= {"process_died"}, failed
    outputs, wanted = (
        {(row, at): output for row, best in each.pop("best_outputs_valset").items() for at, output in best}
        for each in (found, honest)
    )
    assert {**wanted, **outputs} == wanted
    assert len(wanted) - len(outputs) <= failed["failed"]
    assert {**found, "program": None} == {**honest, "program": None}
    assert here.sandboxes() == []


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
        capped = here.run(*isolated(here, "capped", "calling", "--model-prices", prices, "--max-cost-usd", 0.2))
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
