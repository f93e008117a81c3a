"""Commands that are printed about runs whose code evolves, each run as printed, in the state in which it is printed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gepa_client import report
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, git_branch
from tests.gepa_client.cli.conftest import Types
from tests.gepa_client.cli.mutation_script import Evolving
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Serve
from tests.gepa_client.example_records import COMMITS, code_record, explanation, mutated, refused, started
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import RUN_ID, Made, put

EXAMPLE = Path(__file__).parents[3] / "examples" / "repeats" / "evolve.py"
TASK = '{{"text": "{0} two three {0}!", "answer": "{0}"}}\n'
FIX = "sed -i 's/if word in before/if plain(word) in before/' repeats.py"
"""An agent that makes the example right."""


class OfRepository(Evolving):
    """Changes the code to the first commit of a stored run, with a text that the code does not have."""

    def __init__(self, code: StoredCode) -> None:
        self._applied = code.applied(1)
        super().__init__(seed=code.seed, changed=code.commits[1])
        self.script.replies["outline_code"] = lambda _: {"outline": ""}

    async def mutated(self, params: dict[str, Any]) -> dict[str, Any]:
        branch = f"evolve/{params['name']['run']}/{params['name']['number']}"
        code = {GIT_BRANCH: git_branch(branch, self.changed), ADDED_COMPONENTS: added_components({"tone": "kind"})}
        answer = {"candidate": params["candidate"] | code, "branch": branch}
        return await super().mutated(params) | self._applied | answer


@pytest.mark.long
def test_of_a_run_that_changed_no_code(serve: Serve, in_process: Cli, types: Types, model: str, tmp_path: Path) -> None:
    code = StoredCode(tmp_path)
    store = ("--store", str(tmp_path / "kept here.db"))
    put(store[1], Made(config={"url": [serve(OfRepository(code).script)], "reflection_lm": model}))
    none = in_process("branches", "last", *store).stdout
    done = types(none, "gepa-client optimize", within="user").stdout
    assert "0.00 -> 1.00" in done
    assert "1 kept" in types(done, "gepa-client branches", label="all code", within="user").stdout
    out = types(done, "gepa-client branches", label="next", within="user").stdout
    assert git(code.user, "rev-parse", "HEAD").strip() == code.commits[1]
    assert "as asked" in types(out, "gepa-client mutate", within="user").stdout


def test_of_reports_that_leave_out_code(types: Types, tmp_path: Path) -> None:
    store = tmp_path / "kept here.db"
    StoredCode(tmp_path).into(store)
    long = mutated(3, commit=COMMITS[2], diff="--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,5000 @@\n" + "+line\n" * 5000)
    record = code_record(*(refused(number) for number in range(100, 200)), long)
    record.apply(started(run_id=RUN_ID, store=str(store)))
    text = report.markdown(record, explanation(record))
    assert "print it louder" in types(text, f"gepa-client branches {RUN_ID} --store").stdout
    assert ".upper()" in types(text, f"gepa-client branches {RUN_ID} --diff").stdout


@pytest.mark.long
@pytest.mark.usefixtures("own_state")
def test_of_the_example_that_evolves(types: Types, model: str, tmp_path: Path) -> None:
    for split, words in (("train", "xyz"), ("val", "uv")):
        (tmp_path / f"{split}.jsonl").write_text("".join(TASK.format(word) for word in words))
    ended = subprocess.run(
        [
            *(sys.executable, EXAMPLE, "python", "--agent-command", FIX, "--reflection-lm", model),
            *("--trainset", "train.jsonl", "--valset", "val.jsonl"),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0.00 -> 1.00" in ended.stdout
    assert "--check-out" in types(ended.stdout, "gepa-client branches", label="next").stdout
    assert "kept" in types(ended.stdout, "gepa-client branches", label="What was changed").stdout
    assert "is checked out" in types(ended.stdout, "gepa-client branches", label="The best of it").stdout
