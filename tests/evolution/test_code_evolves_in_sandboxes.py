"""A whole run in sandboxes: the real coding agent reaches its model through the gateway, and its commits come out."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.evolution.conftest import World
from tests.evolution.scenario import COMPARE, REMEMBER, TESTS

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: apt install bubblewrap")


@pytest.fixture
def state() -> Iterator[Path]:
    """Where the command keeps what it knows; short, as sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="gepa-") as folder:
        yield Path(folder)


@pytest.mark.timeout(400)
def test_the_code_evolves_in_sandboxes_and_its_model_calls_are_counted(
    world: Callable[..., World], state: Path
) -> None:
    here = world("python", short=True)
    before = here.git("for-each-ref")
    key = here.agent_environment["ANTHROPIC_API_KEY"]
    kept = {"XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(state), "XDG_RUNTIME_DIR": str(state)}
    told = ("optimize", "--repo", here.repository, "--sandboxes", 2, *here.optimized, "--json")

    said = here.client(None, *told, variables={**kept, **here.agent_environment})

    events = [json.loads(line) for line in said.splitlines()]
    assert [event["request"] for event in events if event["event"] == "mutated"] == [COMPARE, REMEMBER]
    result = json.loads((here.folder / "run" / "result.json").read_text())
    assert result["val_aggregate_scores"] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    assert result["total_metric_calls"] == 21
    calls = events[-1]["model_calls"]
    assert (calls["calls"], calls["input_tokens"], calls["unpriced"]) == (10, 1000, 0)
    assert not any(key in path.read_text("latin-1") for path in here.folder.glob("run/**/*") if path.is_file())
    assert here.git("for-each-ref") == before, "the user's repository is read, and nothing more"

    here.client(None, "branches", result["run_id"], "--check-out", "--repo", here.repository)
    assert "before = set()" in (here.repository / "repeats.py").read_text()
    subprocess.run(TESTS["python"], shell=True, cwd=here.repository, check=True)  # noqa: S602  # a constant
