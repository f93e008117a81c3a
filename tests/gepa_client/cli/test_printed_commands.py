"""Every command that the product prints runs as printed, in the state in which it is printed."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gepa_client.code.branches import by_hand_name
from gepa_client.errors import JournalError
from gepa_client.journal.opening import open_store
from gepa_client.result import load_result
from protocol.errors import UnknownCandidate
from tests import printed_commands
from tests.gepa_client.cli.evolving import Evolving
from tests.gepa_client.conftest import TIMEOUT_S, Ran, environment
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import RUN_ID, Made, put
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
    over = cli("resume", "last", *STORE)
    assert "completed: max_metric_calls of 140 is reached" in types(over.stdout, again).stdout
    assert types(cli("runs", *STORE).stdout, "gepa-client show").stdout
    assert types(cli("show", "last", *STORE).stdout, "less ").stdout
    assert types(cli("cancel", "last", *STORE).stderr, "gepa-client show").stdout
    less = cli("resume", "last", "--max-metric-calls", 65, *STORE)
    assert types(types(less.stderr, "gepa-client fork").stdout, again).stdout
    assert types(cli("replay", "last", *STORE).stdout, "gepa-client show").stdout


def test_of_a_run_whose_program_is_another_one(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(12, 100)})
    assert cli("optimize", serve(script), "--max-metric-calls", 30, "--no-check", *STORE).status == 0
    script.seed = {"rules": "other"}
    url = serve(script)
    refused = cli("resume", "last", url, "--max-metric-calls", 40, *STORE)
    assert refused.status == 2
    forked = types(refused.stderr, "gepa-client fork")
    assert "next: gepa-client resume" in forked.stdout


def test_of_a_run_that_only_money_would_end(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    url = serve(script)
    ended = cli("optimize", url, "--max-cost-usd", 0.5, "--no-check", *STORE)
    assert ended.status == 1
    script.evaluate = lambda row, candidate: scored(row, candidate) | {"usage": {"cost_usd": 0.1}}
    assert "completed: " in types(ended.stdout, "gepa-client resume").stdout


def test_of_runs_that_are_driven_or_should_be(cli: Cli, types: Types, tmp_path: Path) -> None:
    code = StoredCode(tmp_path, run_id="driven", status="running")
    code.into(tmp_path / STORE[1])
    store = open_store(str(tmp_path / STORE[1]))
    try:
        assert store.claim("driven", store.run("driven").claim, "another", "pid 1 on here")
        store.update("driven", {"config": store.run("driven").config | {"lease_s": 2.0}})
        shown = cli("show", "driven", *STORE)
        refused = cli("branches", "driven", "--delete", "--yes", "--repo", "user", *STORE)
        waiting = cli("cancel", "driven", "--wait", 0, *STORE)
        for text in (shown.stdout, refused.stderr, waiting.stdout):
            store.update("driven", {"status": "running"})
            assert types(text, "gepa-client cancel").stdout
            assert store.claim("driven", store.run("driven").claim, "another", "pid 1 on here")
    finally:
        store.close()


def test_of_a_run_whose_driver_is_gone(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    assert cli("optimize", serve(script), "--max-metric-calls", 20, "--no-check", *STORE).status == 0
    with sqlite3.connect(tmp_path / STORE[1]) as database:
        database.execute("UPDATE runs SET status = 'running', updated = '2026-01-02T03:04:05+00:00'")
    database.close()
    [silent] = [line for line in cli("runs", *STORE).stdout.splitlines() if "takes it over" in line]
    assert types(silent.replace(" takes it over", ""), "gepa-client resume").stdout


def test_of_outputs_that_were_scored_anew(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    put(tmp_path / STORE[1], Made())
    scores = {"results": [{"status": "ok", "score": 1.0, "output": None, "seconds": 0.0}]}
    scorer = Script(capabilities=("scoring", "idempotency", "async"), replies={"score": lambda _: scores})
    ended = cli("rescore", "last", "--with", serve(scorer), *STORE)
    assert types(ended.stdout, "gepa-client show").stdout


def test_of_a_commit_that_the_server_does_not_have(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    code = StoredCode(tmp_path)
    code.into(tmp_path / "runs.db")
    evolving = Evolving(raises=UnknownCandidate("no such commit", commit="1" * 40))
    ended = cli("mutate", serve(evolving.script), "say yes", "--limit", 0)
    assert ended.status == 1
    words = {"branches RUN": "branches last --store ../runs.db"}
    assert types(ended.stderr, "gepa-client branches", within="user", **words).stdout


def test_of_a_record_that_gepa_does_not_follow(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    assert cli("optimize", serve(script), "--max-metric-calls", 30, "--no-check", *STORE).status == 0
    with sqlite3.connect(tmp_path / STORE[1]) as database:
        database.execute("UPDATE entries SET digest = 'ff' WHERE part = 'search' AND number = 9")
    database.close()
    failed = cli("resume", "last", "--max-metric-calls", 40, *STORE)
    assert failed.status == 1, failed.stdout
    forked = types(failed.stdout, "gepa-client fork")
    with pytest.raises(JournalError) as unscored:
        load_result("last", str(tmp_path / STORE[1]))
    again = str(unscored.value).replace(str(tmp_path / STORE[1]), STORE[1])
    assert types(again, "gepa-client resume").stdout
    assert forked.stdout


def test_of_a_check(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    checked = cli("check", serve(script))
    assert checked.status == 0, checked.stdout
    assert "completed: " in types(checked.stdout, "gepa-client optimize").stdout
    unpriced = cli("optimize", serve(script), "--max-cost-usd", 0.5)
    assert unpriced.status == 2
    assert "completed: " in types(unpriced.stderr, "gepa-client optimize").stdout


def test_of_runs_that_are_not_there(cli: Cli, types: Types, serve: Serve) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    assert types(cli("runs").stdout, "gepa-client optimize", **{"http://127.0.0.1:8000": serve(script)}).stdout
    named = cli("optimize", "--max-metric-calls", 20)
    assert types(named.stderr, "gepa-client optimize", **{"http://127.0.0.1:8000": serve(script)}).stdout
    none = cli("runs", "--status", "failed")
    assert types(none.stdout, "gepa-client runs").stdout


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
    done = types(cli("fork", "last", "--at", 0).stdout, "gepa-client resume")
    assert "completed: " in done.stdout
    cli("export", "last", "--output", "done.json")
    (tmp_path / "done.json").rename(elsewhere / "done.json")
    told = types("gepa-client import done.json", "gepa-client", within="elsewhere")
    shown = types(told.stdout, "gepa-client show", within="elsewhere")
    assert types(shown.stdout, "gepa-client replay", within="elsewhere").stdout


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


def test_of_texts_that_are_not_in_the_best_code(cli: Cli, types: Types, tmp_path: Path) -> None:
    code = StoredCode(tmp_path, texts_evolved=True)
    code.into(tmp_path / STORE[1])
    ended = cli("branches", "last", "--check-out", "--repo", "user", *STORE)
    assert "louder" in types(ended.stdout, "gepa-client show").stdout


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
    for place in printed_commands.found():
        if "make " in place and not place.startswith("gepa_client"):
            assert place.rpartition("make ")[2] in printed_commands.TARGETS


REASONS = (
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
