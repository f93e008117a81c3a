"""Every command that the product prints runs as printed, in the state in which it is printed."""

import contextlib
import re
from pathlib import Path
from typing import Any

from gepa_client.evolution.candidate_names import manual_run_name
from gepa_client.journal.store import open_store
from tests.gepa_client.cli.conftest import Types
from tests.gepa_client.code_server import CodeServer
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.scripted_server import Host, failed
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import IDENTITY, RUN_ID, Made, put
from tests.gepa_client.word_program import Script, rows, scored

STORE = ("--store", "kept here.db")


def breaks(_row: dict[str, Any], _candidate: dict[str, str]) -> dict[str, Any]:
    return failed(kind="KeyError", message="'a'")


def test_of_a_run_that_pauses_is_resumed_and_completes(serve: Serve, host: Host, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(60, 100)}, evaluate=breaks)
    url = serve(script)
    paused = cli("optimize", url, "--max-metric-calls", 70, "--check", "off", *STORE)
    assert paused.status == 3, paused.stdout + paused.stderr
    assert "KeyError" in types(paused.stdout, "evolverpc show").stdout
    script.evaluate = scored
    listed, shown = cli("runs", *STORE), cli("show", "last", *STORE)
    again = "evolverpc resume"
    assert f"next: {again}" in listed.stdout
    assert f"next: {again}" in shown.stdout
    assert types(shown.stdout, "evolverpc show").stdout
    [next_line] = [line for line in paused.stdout.splitlines() if line.startswith("next ")]
    [listed_line] = [line for line in listed.stdout.splitlines() if again in line]
    assert next_line.split()[1:] == listed_line.split()[1:]
    done = types(next_line, again)
    assert "completed: " in done.stdout
    assert "next            evolverpc watch " in done.stdout
    over = cli("resume", "last", *STORE)
    assert "completed: max_metric_calls of 140 is reached" in types(over.stdout, again).stdout
    host.stop(url)
    away = cli("resume", "last", "--max-metric-calls", 280, *STORE)
    assert away.status == 3
    [next_line] = [line for line in away.stdout.splitlines() if again in line]
    assert "completed: max_metric_calls of 280 is reached" in types(f"{next_line} {serve(script)}", again).stdout


def test_of_a_stored_run_that_is_complete(cli: Cli, types: Types, tmp_path: Path) -> None:
    put(tmp_path / STORE[1], Made(identity=IDENTITY))
    assert types(cli("runs", *STORE).stdout, "evolverpc show").stdout
    assert types(cli("cancel", "last", *STORE).stderr, "evolverpc show").stdout
    cli("export", "last", "--output", "complete.json", *STORE)
    taken = cli("import", "complete.json", "--store", "elsewhere.db")
    assert taken.status == 0, taken.stderr
    assert types(taken.stdout, "evolverpc show").stdout
    less = cli("resume", "last", "--max-metric-calls", 25, *STORE)
    assert less.status == 2
    assert "fork it where it had made fewer" in " ".join(less.stderr.split())


def test_of_a_stored_run_that_is_driven(cli: Cli, types: Types, tmp_path: Path) -> None:
    StoredCode(tmp_path, status="running").into(tmp_path / STORE[1])
    with contextlib.closing(open_store(str(tmp_path / STORE[1]))) as store:
        store.update(RUN_ID, {"config": store.run(RUN_ID).config | {"lease_s": 0.1}})
        assert store.claim(RUN_ID, store.run(RUN_ID).claim, "another", "pid 1 on here")
        refused = cli("branches", "last", "--delete", "--yes", "--repo", "user", *STORE)
        shown = cli("show", "last", *STORE)
        waiting = cli("cancel", "last", "--wait", 0, *STORE)
    assert waiting.status == 1
    printed = refused.stderr + shown.stdout + waiting.stdout
    assert printed.count("evolverpc cancel") == 3
    cancelled = types(printed, "evolverpc cancel")
    assert types(cancelled.stdout, "evolverpc show").stdout


def test_of_a_run_that_is_steered(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    put(tmp_path / STORE[1], Made())
    assert cli("fork", "last", serve(script), "--at", 0, "--max-metric-calls", 10, *STORE).status == 0
    with contextlib.closing(open_store(str(tmp_path / STORE[1]))) as store:
        run = store.runs()[0]
        store.update(run.id, {"status": "running", "config": run.config | {"lease_s": 0.1}})
        assert store.claim(run.id, store.run(run.id).claim, "another", "pid 1 on here")
        driven = cli("steer", "unpin", run.id, "--wait", 0, *STORE)
        pausing = cli("pause", run.id, "--wait", 0, *STORE)
    assert (driven.status, pausing.status) == (0, 1)
    assert "unpin" in types(driven.stdout, "evolverpc steer").stdout
    assert "next: evolverpc resume" in types(pausing.stdout, "evolverpc pause").stdout
    with contextlib.closing(open_store(str(tmp_path / STORE[1]))) as store:
        store.update(run.id, {"config": run.config})  # else the resumed run must write a heartbeat every 0.1 s
    asked = cli("steer", "pin", run.id, 0, *STORE)
    assert asked.status == 0
    assert "waits" in types(cli("show", run.id, *STORE).stdout, "evolverpc steer").stdout
    types(asked.stdout, "evolverpc resume")
    shown = cli("show", run.id, *STORE).stdout
    assert "pin candidate 0" in types(shown, "evolverpc steer").stdout


def test_of_texts_that_are_not_in_the_best_code(cli: Cli, types: Types, tmp_path: Path) -> None:
    StoredCode(tmp_path, texts_evolved=True).into(tmp_path / STORE[1])
    ended = cli("branches", "last", "--check-out", "--repo", "user", *STORE)
    assert "louder" in types(ended.stdout, "evolverpc show").stdout


def test_of_a_check(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    checked = cli("check", serve(script))
    assert checked.status == 0, checked.stdout
    assert "completed: " in types(checked.stdout, "evolverpc optimize").stdout
    unpriced = cli("optimize", serve(script), "--max-cost-usd", 0.5)
    assert unpriced.status == 2
    assert "completed: " in types(unpriced.stderr, "evolverpc optimize").stdout


def test_of_runs_that_are_not_there(serve: Serve, cli: Cli, types: Types) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(6, 100)})
    none, unnamed = cli("runs"), cli("optimize", "--max-metric-calls", 20)
    assert "Usage" in types(none.stdout, "evolverpc optimize").stdout
    assert types(unnamed.stderr, "evolverpc optimize", **{"http://127.0.0.1:8000": serve(script)}).stdout
    assert types(cli("runs", "--status", "failed").stdout, "evolverpc runs").stdout


def test_of_a_run_that_goes_elsewhere(serve: Serve, cli: Cli, types: Types, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(12), "val": rows(60, 100)}, evaluate=breaks)
    url = serve(script)
    assert cli("optimize", url, "--max-metric-calls", 70, "--check", "off").status == 3
    exported = cli("export", "last")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in tmp_path.glob("*.json"):
        file.rename(elsewhere / file.name)
    taken = types(exported.stdout, "evolverpc import", within="elsewhere")
    nowhere = cli("resume", "last", within="elsewhere")
    assert nowhere.status == 2
    script.evaluate = scored
    words = {"http://127.0.0.1:8000": url, "RUN": "last"}
    assert types(nowhere.stderr, "evolverpc resume", within="elsewhere", **words).stdout
    assert types(taken.stdout, "evolverpc resume", within="elsewhere", URL=url).stdout


def test_of_a_run_that_changed_code(cli: Cli, types: Types, tmp_path: Path) -> None:
    code = StoredCode(tmp_path)
    code.into(tmp_path / STORE[1])
    for repo, words in (((), {"REPOSITORY": "user"}), (("--repo", "user"), {})):
        listed = cli("branches", "last", *repo, *STORE)
        assert types(listed.stdout, f"evolverpc branches {RUN_ID} --diff", **words).stdout
        out = types(listed.stdout, f"evolverpc branches {RUN_ID} --check-out", **words)
        assert git(code.user, "branch", "--show-current").strip() == code.branch(3)
        deleted = types(out.stdout, f"evolverpc branches {RUN_ID} --delete", stdin="y\n")
        assert "0 branches deleted" in deleted.stdout
        types(out.stdout, "git ")
        assert git(code.user, "branch", "--show-current").strip() == "main"
        git(code.user, "branch", "-D", code.branch(3))
    assert types(cli("show", "last", *STORE).stdout, "evolverpc branches").stdout


def test_of_a_change_made_by_hand(cli: Cli, types: Types, code_server: CodeServer, tmp_path: Path) -> None:
    ended = cli("mutate", code_server.url, "learn pink", "--output", "new.json", "--limit", 1)
    assert ended.status == 0, ended.stderr
    assert types(ended.stdout, "evolverpc mutate").stdout
    [name, _] = [params["name"] for params in code_server.called("apply_mutation")]
    assert re.fullmatch(r"by-hand-[0-9a-f]{8}", name["run"])
    code = StoredCode(tmp_path)
    branch = f"evolve/{manual_run_name()}/0"
    git(code.user, "branch", branch)
    listed = types(ended.stdout, "evolverpc branches", within="user")
    assert branch in listed.stdout
    assert types(listed.stdout, "git log", within="user").stdout
    assert "1 branch deleted" in types(listed.stdout, "evolverpc branches", within="user", stdin="y\n").stdout
    assert git(code.user, "branch", "--list", "evolve/*") == ""
