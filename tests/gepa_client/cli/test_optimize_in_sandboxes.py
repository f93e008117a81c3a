"""`evolverpc` starts its own servers, and nothing of them is left, however it ends."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gepa_client.cli.sandboxed_program import PROGRAM, Place, place
from tests.support.forked_client import ForkServer
from tests.support.waiting import until

LIMIT_S = 60.0


@pytest.fixture
def here(tmp_path: Path, fork_server: ForkServer) -> Iterator[Place]:
    with place(tmp_path, fork_server, {"writing": ARTIFACTS}) as found:
        yield found
        left = found.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []


def read_until(process: "subprocess.Popen[str]", event: str, **holding: object) -> None:
    """Read up to the event of this name, with these fields."""
    assert process.stdout is not None
    for line in process.stdout:
        found = json.loads(line)
        if found["event"] == event and holding.items() <= found.items():
            return
    pytest.fail(f"it ended before {event}: {process.stderr.read() if process.stderr else ''}")


@pytest.mark.timeout(300)  # five commands, one after the other
def test_after_deaths_a_sweep_and_a_resumption_the_result_is_that_of_an_undisturbed_run(here: Place) -> None:
    undisturbed = here.run(*here.optimize("undisturbed", "writing"), "--sandboxes", 1)
    assert undisturbed.status == 0, undisturbed.stderr
    assert "isolates nothing" in undisturbed.stderr
    best = json.loads((here.folder / "undisturbed/best_candidate.json").read_text())["text"]
    assert artifacts_of(here.folder / "undisturbed") == {"program.json": best, "deep/er/weights": best}
    assert "2 files of the program copied to" in undisturbed.stderr
    assert "not copied from the program's artifacts: link (no plain file within its folder" in undisturbed.stderr
    assert here.processes() == []

    disturbed = here.start(*here.optimize("disturbed", "writing"))
    try:
        read_until(disturbed, "candidate", index=0)
        os.kill(here.processes()[0], signal.SIGKILL)
        read_until(disturbed, "candidate", index=2)
    finally:
        disturbed.kill()
        disturbed.communicate(timeout=LIMIT_S)
    until(lambda: here.processes() == [])  # they end with the command
    found = here.run("sandboxes", "--json")
    assert found.status == 0
    assert {(each["sandbox"], each["orphan"]) for each in found.events} == {("process", True)}
    run = found.events[0]["run"]

    swept = here.run("sandboxes", "--sweep")
    assert swept.status == 0, swept.stderr
    ended = len(found.events)  # the second may not have started yet
    assert f"\n{ended} sandbox{'' if ended == 1 else 'es'} ended, 0 left\n" in swept.stdout
    assert here.processes() == []
    assert list(here.state.glob("evolverpc/*/*")) == []

    (here.folder / "train.jsonl").unlink()  # the run has recorded its rows
    resumed = here.run("resume", run, "--json")
    assert resumed.status == 0, resumed.stderr
    assert here.result("disturbed") == here.result("undisturbed")
    assert here.processes() == []


WRITES = """
def finalize(best_candidate, best_score, run):
    os.makedirs("made/deep/er")
    for name in ("program.json", "deep/er/weights"):
        with open(f"made/{name}", "w") as file:
            file.write(best_candidate["text"])
    os.symlink("/etc/hostname", "made/link")
    return "saved"
"""
ARTIFACTS = {
    "words.py": f"import os\n{PROGRAM.partition('def finalize')[0]}{WRITES}",
    "gepa.toml": 'program = "words.py"\nversion = "1"\nworkers = 1\nartifacts = "made"\n',
}


def artifacts_of(output: Path) -> dict[str, str]:
    """The files of the program in a run's folder, by their paths."""
    home = output / "artifacts"
    return {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}


def test_ctrl_c_while_they_are_started_leaves_nothing_and_is_prompt(here: Place) -> None:
    starting = here.start(*here.optimize("out", "slow"))
    until(lambda: len(here.processes()) >= 2)
    began = time.monotonic()
    os.killpg(starting.pid, signal.SIGINT)
    out, err = starting.communicate(timeout=LIMIT_S)
    assert (starting.returncode, out) == (130, "")
    assert "stopped by hand" in err
    assert "Traceback" not in err
    assert time.monotonic() - began < 10
    assert list(here.state.glob("evolverpc/*/*")) == []
    assert not (here.folder / "out").exists()
