"""`evolverpc optimize` over a real socket: its results, files and output, and what it keeps after an error."""

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from evolverpc import load_candidate
from gepa_client import load_result
from gepa_client.journal.entries import COMPLETION, FAILURE, SEARCH
from gepa_client.settings.run_config import ROW_SETTINGS
from gepa_client.settings.run_settings import RECORDED_ROWS
from protocol.errors import ProgramFailed
from tests.gepa_client.conftest import TIMEOUT_S, Cli, Serve, Start, environment
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run.conftest import model_arguments
from tests.gepa_client.run_folder import best_so_far, driver_of, only_run, stored
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script, rows, scored
from tests.support.waiting import until


def test_a_run_ends_with_its_files_the_test_scores_of_seed_and_best_and_one_line_of_them(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    ended = cli("optimize", serve(words), "--max-metric-calls", 300, "--name", "my python!")
    assert ended.status == 0, ended.stdout + ended.stderr
    last = ended.stdout.splitlines()[-1]
    assert re.fullmatch(r"my python!: score 0\.00 -> 1\.00, \d+ metric calls, \d+\.\d s \(12 test rows\)", last)
    run = only_run(tmp_path)
    assert run.name.endswith("-my-python")
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert set(json.loads((run / "best_candidate.json").read_text())["rules"].split()) >= {"red", "green", "blue"}
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "completed"
    assert result["program"].keys() == {"name", "version", "digest"}
    assert result["program"]["name"]
    assert (result["seed_score"], result["best_score"]) == (0.0, 1.0)
    assert result["test_scores"]["0"] == 0.0
    assert result["val_rows"]["30"] == "0"
    page = page_text(run / "report.html")
    assert "On 12 test rows the seed scores 0 and the best candidate (6) scores 1." in page
    assert f'use it          `import evolverpc; evolverpc.load_candidate("runs/{run.name}")`' in ended.stdout
    assert load_candidate(run, words.seed) == json.loads((run / "best_candidate.json").read_text())
    assert "thank you" in ended.stdout
    assert "Iteration 1: " in (run / "run.log").read_text()
    splits = [params["batch"][0]["split"] for params in words.calls("evaluate")]
    assert splits[-24:] == ["test"] * 24
    assert "test" not in splits[:-24]
    candidates = [params["candidate"]["rules"] for params in words.calls("evaluate")[-24:]]
    assert candidates[:12] == [""] * 12
    assert len(set(candidates[12:])) == 1


def test_progress_events_count_the_examples_in_flight(serve: Serve, cli: Cli, words: Script) -> None:
    words.delay_s, words.max_concurrency = 0.3, 4
    ended = cli("optimize", serve(words), "--max-metric-calls", 12, "--json", "--check", "off")
    readings = [(event["evaluated"], event["in_flight"]) for event in ended.events if event["event"] == "progress"]
    assert {(0, 4), (4, 4), (8, 4)} <= set(readings)
    assert readings[-1] == (24, 0)
    assert any("no candidate will be tried" in each["message"] for each in ended.events if each["event"] == "warning")
    assert [event["event"] for event in ended.events][-2:] == ["finished", "summary"]
    assert ended.event("started")["hash_seed"] == "0"
    assert ended.event("started")["splits"] == {"train": 30, "val": 12, "test": 12}
    assert (ended.event("summary")["rows"], ended.event("summary")["exit_status"]) == ("12 test rows", ended.status)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "out"), "out is not empty; results of another run are never written over"),
        (
            ("--token-file", "token"),
            "the server refused the token from token; is it from an older start of the server?",
        ),
        (("--reflection-lm", "unknown"), "no provider"),
    ],
)
def test_what_cannot_start_is_refused_in_one_line_before_anything_is_run(
    serve: Serve,
    cli: Cli,
    words: Script,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    (tmp_path / "token").write_text("wrong")
    ended = cli("optimize", serve(words), "--max-metric-calls", 50, *arguments)
    assert ended.status == 2
    [line] = ended.stderr.splitlines()
    assert message in line
    assert words.calls("evaluate") == []
    assert not (tmp_path / "runs").exists()


def test_a_key_that_the_model_refuses_ends_the_run_at_the_first_response_and_a_resume_asks_again(
    serve: Serve, host: Host, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.datasets = {"train": rows(50)}  # a fifth of them is kept for validation
    accepts = False

    async def complete(request: web.Request) -> web.Response:
        if accepts:
            return await words.complete(request)
        words.seen.append(("complete", {}))
        return web.json_response({"error": {"message": "Incorrect API key", "type": "x", "code": None}}, status=401)

    model = model_arguments(host, complete)
    ended = cli("optimize", serve(words), "--max-metric-calls", 60, *model, "--check", "off")
    assert ended.status == 1
    assert len(words.calls("complete")) == 1
    assert re.search("failed: reflection: AuthenticationError: .*Incorrect API key", ended.stdout)
    assert "Traceback" not in ended.stdout
    assert "Traceback" in (only_run(tmp_path) / "run.log").read_text()
    accepts = True
    resumed = cli("resume", "last", *model[2:], "--json")
    assert resumed.status == 0, resumed.stderr
    assert resumed.event("finished")["status"] == "completed"
    assert len(words.calls("complete")) > 1


def test_the_failure_that_ended_a_run_is_tried_again_by_a_resume(
    serve: Serve, host: Host, cli: Cli, words: Script, tmp_path: Path
) -> None:
    refusals = 5

    async def complete(request: web.Request) -> web.Response:
        nonlocal refusals
        if refusals == 0:
            return await words.complete(request)
        refusals -= 1
        return web.json_response({"error": {"message": "too long", "type": "x", "code": None}}, status=400)

    model = model_arguments(host, complete)
    ended = cli("optimize", serve(words), "--max-metric-calls", 60, *model, "--check", "off")
    assert (ended.status, refusals) == (1, 0), ended.stdout
    assert "5 iterations in a row failed" in ended.stdout
    assert cli("resume", "last", *model_arguments(host, complete)[2:]).status == 0
    with stored(tmp_path) as (store, run_id):
        kinds = [entry.kind for entry in store.entries(run_id, SEARCH) if entry.kind in (COMPLETION, FAILURE)]
    assert kinds[:5] == [FAILURE] * 4 + [COMPLETION]


def test_a_parent_that_dies_takes_the_optimizer_with_it_and_the_result_stays(
    serve: Serve, words: Script, tmp_path: Path
) -> None:
    words.delay_s = 0.05
    endless = ("--max-metric-calls", "100000", "--no-skip-perfect-score", "--check", "off")
    as_a_user = [sys.executable, "-m", "gepa_client", "optimize", serve(words), *endless]
    with subprocess.Popen(as_a_user, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL) as process:
        until(lambda: bool(best_so_far(tmp_path)))
        process.kill()
    until(lambda: (only_run(tmp_path) / "result.json").exists())
    events = (only_run(tmp_path) / "events.jsonl").read_text().splitlines()
    until(lambda: json.loads((only_run(tmp_path) / "events.jsonl").read_text().splitlines()[-1])["event"] == "finished")
    assert json.loads(events[0])["event"] == "phase"


def test_an_optimizer_that_dies_is_reported_and_its_best_candidate_stays(
    serve: Serve, start: Start, words: Script, tmp_path: Path
) -> None:
    words.delay_s = 0.05
    process = start(
        "optimize", serve(words), "--max-metric-calls", 100_000, "--no-skip-perfect-score", "--check", "off"
    )
    until(lambda: bool(best_so_far(tmp_path)))
    os.kill(driver_of(tmp_path), signal.SIGKILL)
    stdout, _ = process.communicate(TIMEOUT_S)
    assert process.returncode == 3
    assert "paused: the driver process was ended by SIGKILL before its run was over" in stdout
    assert f"next            evolverpc resume {only_run(tmp_path).name}" in stdout
    shown = stdout.split("the end of its log:\n")[1].split("no certificate")[0].splitlines()
    assert 1 <= len(shown) <= 5
    assert max(map(len, shown)) <= 160
    assert shown[-1][:40] in (only_run(tmp_path) / "run.log").read_text().splitlines()[-1]
    assert best_so_far(tmp_path)
    assert (only_run(tmp_path) / "report.html").is_file()


def full_disk(_: dict[str, Any]) -> Any:
    raise ProgramFailed("disk full", stage="finalize")


@pytest.mark.parametrize(
    ("finalize", "message"),
    [
        pytest.param(lambda _: asyncio.sleep(3600), "no answer within 60 s", marks=pytest.mark.long),
        (full_disk, "disk full"),
    ],
)
def test_a_finalize_that_hangs_or_fails_does_not_cost_the_result(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path, finalize: Any, message: str
) -> None:
    words.finalize = finalize
    ended = cli("optimize", serve(words), "--max-metric-calls", 14, "--check", "off", "--output", "out")
    assert ended.status == 0
    assert re.search(f"finalize failed: .*{message}", ended.stdout)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["status"] == "completed"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700


def test_a_reflection_model_by_name_proposes_with_the_users_own_prompt(
    serve: Serve, host: Host, cli: Cli, words: Script, tmp_path: Path
) -> None:
    url = serve(words)
    model = host.serve(words.complete, "/v1/chat/completions").removesuffix("/chat/completions")
    (tmp_path / "prompt.txt").write_text("Mind the manners. Now: <curr_param> Seen: <side_info>")
    (tmp_path / "run.toml").write_text(
        f'max_metric_calls = 150\nmax_cost_usd = 1.0\nreflection_lm = "openai/no-such-model"\n'
        f'reflection_prompt_template = "@prompt.txt"\nproposals = "1x2"\n'
        f'[reflection_lm_kwargs]\napi_base = "{model}"\napi_key = "hush"\ntemperature = 0.25\n'
    )
    ended = cli("optimize", url, "-c", "run.toml", "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "score 0.00 -> 1.00" in ended.stdout.splitlines()[-1]
    asked = words.calls("complete")
    assert asked[0]["temperature"] == 0.25
    assert asked[0]["messages"][0]["content"].startswith("Mind the manners.")
    assert words.calls("propose_new_texts") == []
    assert "no price is known for openai/no-such-model, so `max_cost_usd` cannot hold" in ended.stdout
    assert not any("hush" in path.read_text() for path in only_run(tmp_path).iterdir())
    replayed = cli("replay", "last")  # without the key, which is no part of the record
    assert replayed.status == 0, replayed.stdout + replayed.stderr
    assert "score 0.00 -> 1.00" in replayed.stdout.splitlines()[-1]
    assert len(words.calls("complete")) == len(asked)


def test_merge_from_a_seed_that_scores_0_is_refused_before_the_budget_is_spent(
    serve: Serve, cli: Cli, words: Script
) -> None:
    ended = cli("optimize", serve(words), "--max-metric-calls", 500, "--use-merge", "--check", "off")
    assert ended.status == 1
    assert "use_merge cannot be used here: the seed's mean score is 0" in ended.stdout
    assert len(words.calls("evaluate")) == 12


def test_large_best_outputs_are_named_in_the_result_and_loaded_from_the_store(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    def long(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        return {**scored(data, candidate), "output": data["text"] * 20_000}

    words = Script(datasets={"train": rows(6), "val": rows(4, 10)}, evaluate=long)
    ended = cli("optimize", serve(words), "--max-metric-calls", 4, "--check", "off")
    assert ended.status == 0, ended.stderr
    file = only_run(tmp_path) / "result.json"
    assert file.stat().st_size < 20_000
    outputs = json.loads(file.read_text())["best_outputs_valset"]
    assert [output["in_journal"]["number"] for [[_, output]] in outputs.values()] == [0, 1, 2, 3]
    loaded = load_result("last", str(tmp_path / "runs" / "evolverpc.db")).best_outputs_valset
    assert loaded is not None
    assert [output for [(_, output)] in loaded.values()] == [f"row {number}" * 20_000 for number in range(10, 14)]


def as_lines(given: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in given)


def test_rows_come_from_stdin_and_from_the_configuration_and_a_resume_needs_neither(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    words = Script()
    val = "".join(
        f"[[valset]]\ntext = {json.dumps(row['text'])}\nneed = {json.dumps(row['need'])}\n" for row in rows(8)
    )
    test = f"testset = [{{ text = {json.dumps(rows(1)[0]['text'])}, need = 'red', api_key = 'a column' }}]\n"
    (tmp_path / "run.toml").write_text(f"max_metric_calls = 40\n{test}{val}")
    given = ("--config", "run.toml", "--trainset", "-", "--check", "off", "--json")
    first = cli("optimize", serve(words), *given, stdin=as_lines(rows(10)))
    assert first.status == 0, first.stderr
    started = first.event("started")
    assert started["splits"] == {"train": 10, "val": 8, "test": 1}
    warnings = [event["message"] for event in first.events if event["event"] == "warning"]
    assert any("8 of 8 validation rows are training rows too (ids 0, 1, 2, ...): " in each for each in warnings)
    run_id = started["run_id"]
    with stored(tmp_path) as (store, _):
        assert {store.run(run_id).config[name] for name in ROW_SETTINGS} == {RECORDED_ROWS}
    again = cli("resume", run_id, "--max-metric-calls", 60, "--json")
    assert again.status == 0, again.stderr
    assert again.event("started")["splits"] == started["splits"]
    array = json.dumps(rows(10))
    assert cli("resume", run_id, "--max-metric-calls", 70, "--trainset", "-", stdin=array).status == 0
    (tmp_path / "other.jsonl").write_text(as_lines(rows(9)))
    other = cli("resume", run_id, "--max-metric-calls", 80, "--trainset", "other.jsonl")
    assert other.status == 2
    assert "data.train" in other.stderr
    forked = json.loads(cli("fork", run_id, "--at", 5, "--json").stdout)["id"]
    assert "trainset: its rows were given inline or over stdin" in cli("resume", forked).stderr
    refused = cli("fork", run_id, "--at", 5, "--trainset", "-", stdin=array)
    assert (refused.status, "give rows from stdin, or inline, when you resume" in refused.stderr) == (2, True)
