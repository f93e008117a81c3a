"""Every command that the product prints runs as printed, in the state in which it is printed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gepa_client.code.branches import by_hand_name
from tests import printed_commands
from tests.gepa_client.cli.evolving import Evolving
from tests.gepa_client.conftest import TIMEOUT_S, Ran, environment
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import RUN_ID
from tests.gepa_client.words import Script, rows, scored

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]
Types = Callable[..., Ran]

PLACEHOLDER = re.compile(r"(?<![\w/.-])[A-Z]{3,}(?![\w/.-])")
STORE = ("--store", "kept here.db")


@pytest.fixture
def types(tmp_path: Path) -> Types:
    """Runs the one command of a text that begins so, as a shell does; `words` take the place of placeholders."""

    def run(text: str, beginning: str, *, within: str = ".", stdin: str = "", **words: str) -> Ran:
        printed = {found.rstrip(" ,.)") for found in re.findall(rf"{re.escape(beginning)}[^`\n;]*", text)}
        assert len(printed) == 1, (beginning, printed, text)
        line = printed.pop()
        for placeholder, word in words.items():
            line = line.replace(placeholder, word)
        assert not PLACEHOLDER.search(line.replace("ANOTHER CHANGE", "")), line
        shell = f'gepa-client() {{ "{sys.executable}" -m gepa_client "$@"; }}; less() {{ cat "$@"; }}; {line}'
        ended = subprocess.run(
            ["bash", "-c", shell],
            cwd=tmp_path / within,
            env=environment() | {"PYTHONPATH": str(printed_commands.ROOT)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return run


def breaks(_row: dict[str, Any], _candidate: dict[str, str]) -> dict[str, Any]:
    error = {"type": "KeyError", "message": "'a'"}
    return {"status": "program_error", "score": None, "output": None, "seconds": 0.0, "error": error}


def test_of_a_run_that_pauses_goes_on_and_completes(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(60, 100)}, evaluate=breaks)
    paused = cli("optimize", serve(script), "--max-metric-calls", 70, "--no-check", *STORE)
    assert paused.status == 3, paused.stdout + paused.stderr
    assert "KeyError" in types(paused.stdout, "gepa-client show").stdout
    script.evaluate = scored
    listed, shown = cli("runs", *STORE), cli("show", "last", *STORE)
    again = "gepa-client resume"
    assert f"next: {again}" in listed.stdout
    assert f"next: {again}" in shown.stdout
    assert types(shown.stdout, "gepa-client show").stdout
    [next_line] = [line for line in paused.stdout.splitlines() if line.startswith("next ")]
    [listed_line] = [line for line in listed.stdout.splitlines() if again in line]
    assert next_line.split()[1:] == listed_line.split()[1:]
    [stopped] = [line for line in paused.stdout.splitlines() if "--failure-stop 1" in line]
    done = types(stopped, again)
    assert "completed: " in done.stdout
    assert types(done.stdout, "less ").stdout.startswith("# Run ")


def test_of_a_run_that_is_complete(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    assert cli("optimize", serve(script), "--max-metric-calls", 20, "--no-check", *STORE).status == 0
    over = cli("resume", "last", *STORE)
    assert "completed: max_metric_calls of 40 is reached" in types(over.stdout, "gepa-client resume").stdout
    assert types(cli("runs", *STORE).stdout, "gepa-client show").stdout


def test_of_a_run_that_goes_elsewhere(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(60, 100)}, evaluate=breaks)
    url = serve(script)
    assert cli("optimize", url, "--max-metric-calls", 70, "--no-check").status == 3
    exported = cli("export", "last")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in tmp_path.glob("*.json"):
        file.rename(elsewhere / file.name)
    taken = types(exported.stdout, "gepa-client import", within="elsewhere")
    nowhere = subprocess.run(
        [sys.executable, "-m", "gepa_client", "resume", "last"], cwd=elsewhere, env=environment(),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert nowhere.returncode == 2
    script.evaluate = scored
    words = {"http://127.0.0.1:8000": url, "RUN": "last"}
    assert types(nowhere.stderr, "gepa-client resume", within="elsewhere", **words).stdout
    assert types(taken.stdout, "gepa-client resume", within="elsewhere", URL=url).stdout


def test_of_a_run_that_changed_code(cli: Cli, types: Types, tmp_path: Path) -> None:
    code = StoredCode(tmp_path)
    code.into(tmp_path / STORE[1])
    for repo, words in (((), {"REPOSITORY": "user"}), (("--repo", "user"), {})):
        listed = cli("branches", "last", *repo, *STORE)
        assert types(listed.stdout, f"gepa-client branches {RUN_ID} --diff", **words).stdout
        out = types(listed.stdout, f"gepa-client branches {RUN_ID} --check-out", **words)
        assert git(code.user, "branch", "--show-current").strip() == code.branch(3)
        deleted = types(out.stdout, f"gepa-client branches {RUN_ID} --delete", stdin="y\n")
        assert "0 branches deleted" in deleted.stdout
        types(out.stdout, "git ")
        assert git(code.user, "branch", "--show-current").strip() == "main"
        git(code.user, "branch", "-D", code.branch(3))
    assert types(cli("show", "last", *STORE).stdout, "gepa-client branches").stdout


def test_of_a_change_made_by_hand(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    evolving = Evolving()
    ended = cli("mutate", serve(evolving.script), "say yes", "--output", "new.json", "--limit", 1)
    assert ended.status == 0, ended.stderr
    assert types(ended.stdout, "gepa-client mutate").stdout
    [name, _] = [params["name"] for params in evolving.script.calls("apply_mutation")]
    assert re.fullmatch(r"by-hand-[0-9a-f]{8}", name["run"])
    code = StoredCode(tmp_path)
    branch = f"evolve/{by_hand_name()}/0"
    git(code.user, "branch", branch)
    listed = types(ended.stdout, "gepa-client branches", within="user")
    assert branch in listed.stdout
    assert types(listed.stdout, "git log", within="user").stdout
    assert "1 branch deleted" in types(listed.stdout, "gepa-client branches", within="user", stdin="y\n").stdout
    assert git(code.user, "branch", "--list", "evolve/*") == ""


def test_of_the_makefile() -> None:
    targets = {target for place in printed_commands.found() for target in re.findall(r"\bmake ([a-z-]+)", place)}
    assert "demo" in targets
    assert targets <= set(printed_commands.TARGETS)


REASONS = (
    "not run by a test yet",
    "composes commands for others to print",
    "names a command, prints none to be run",
    "needs sandboxes that others may own, or Modal",
    "needs an agent or a model",
    "needs a set-up checkout",
)
"""Why a place is run by no test."""


def test_every_place_that_prints_a_command_is_run_by_a_test() -> None:
    known = json.loads((Path(__file__).parent / "printed_commands.json").read_text())
    places = printed_commands.found()
    assert sorted(places - known.keys()) == [], (
        "add a test that runs it as printed, and name it in printed_commands.json"
    )
    assert sorted(known.keys() - places) == [], "no longer printed: take it out of printed_commands.json"
    for place, covered in known.items():
        file, _, name = covered.partition("::")
        if name:
            assert f"def {name}(" in (printed_commands.ROOT / file).read_text(), (place, covered)
        else:
            assert covered in REASONS, (place, covered)
