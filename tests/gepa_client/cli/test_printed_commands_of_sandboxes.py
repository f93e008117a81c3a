"""Commands that are printed about sandboxes, each run as printed, in the state in which it is printed."""

import shlex
import shutil
from pathlib import Path

import pytest

from gepa_client.sandboxing.session_messages import pool_log
from sandbox_runtime.pool import PoolEvent
from tests.gepa_client.cli.conftest import Types
from tests.gepa_client.cli.test_sandboxes import left_behind
from tests.gepa_client.conftest import Cli
from tests.sandbox_runtime.source.repositories import commit

EXAMPLE = Path(__file__).parents[3] / "examples" / "repeats" / "evolve.py"
TASK = '{{"text": "{0} two three {0}!", "answer": "{0}"}}\n'
FIX = "sed -i 's/if word in before/if plain(word) in before/' repeats.py"
"""An agent that makes the example right."""

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.mark.long
@pytest.mark.timeout(300)  # sandboxes are started many times
def test_of_a_program_that_does_not_start(in_process: Cli, types: Types, model: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copytree(EXAMPLE.parent / "python", program, ignore=shutil.ignore_patterns("__pycache__"))
    sound = (program / "repeats.py").read_text()
    commit(program, {"repeats.py": "import nothing_of_that_name\n"})
    (tmp_path / "rows.jsonl").write_text("".join(TASK.format(word) for word in "xyz"))
    server = ("--repo", "program", "--sandbox", "process", "--server-args", f"--agent-command {shlex.quote(FIX)}")
    of_run = ("--trainset", "rows.jsonl", "--reflection-lm", model, "--evolve", "code")
    limits = ("--max-metric-calls", 12, "--target-score", 1, "--check", "off")

    left_behind("of a run that is gone")
    no_check = in_process("check", *server, *of_run)
    assert no_check.status == 2
    assert "1 sandbox ended" in types(no_check.stdout, "evolverpc sandboxes").stdout
    no_run = in_process("optimize", *server, *of_run, *limits)
    assert no_run.status == 2

    commit(program, {"repeats.py": sound})
    assert "next: evolverpc optimize" in types(no_check.stderr, "evolverpc check").stdout
    done = types(no_run.stderr, "evolverpc optimize").stdout
    assert "0.00 -> 1.00" in done
    assert "is checked out" in types(done, "evolverpc branches", label="next").stdout

    assert in_process("fork", "last", "--at", 0).status == 0
    program.rename(tmp_path / "elsewhere")
    paused = in_process("resume", "last")
    assert paused.status == 3, paused.stderr
    (tmp_path / "elsewhere").rename(program)
    assert "0.00 -> 1.00" in types(paused.stderr, "evolverpc resume").stdout


def test_of_sandboxes_that_are_left_behind(in_process: Cli, types: Types) -> None:
    left_behind("one")
    named = in_process("sandboxes", "--sandbox", "process")
    swept = types(named.stdout, "evolverpc sandboxes").stdout
    assert "1 sandbox ended, 0 left" in swept
    assert "no runs" in types(swept, "evolverpc runs").stdout
    left_behind("two")
    not_freed = PoolEvent("not_freed", 0, 2, "2 did not end within 30 s")
    notice = pool_log(not_freed)
    assert notice is not None
    assert "1 sandbox ended, 0 left" in types(notice.text, "evolverpc sandboxes").stdout
    unknown = in_process("sandboxes", "exec", "absent", "--", "true")
    assert unknown.status == 2
    none = types(unknown.stderr, "evolverpc sandboxes").stdout
    assert "no runs" in types(none, "evolverpc runs").stdout
