"""`evolverpc check` reports the problems of a run before it starts: each has its verdict and message."""

import json
import random
import re
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gepa_client.check.check_report import CheckedExample, examples_verdict
from gepa_client.check.run_forecast import NoiseReport
from gepa_client.settings.run_settings import RACE_ROWS
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, git_branch
from protocol.errors import ProgramFailed
from tests.gepa_client.conftest import Cli, Serve, commands_in
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script, rows, scored
from tests.support.forked_client import ForkServer

CLOSED = "http://127.0.0.1:1"
"""A closed port."""

Evaluate = Callable[[dict[str, Any], dict[str, str]], dict[str, Any]]


@pytest.fixture
def in_fork(tmp_path: Path, fork_server: ForkServer) -> Cli:
    """Runs commands that call a model; importing what calls it takes a second."""
    return commands_in(tmp_path, fork_server)


@pytest.fixture
def cli(in_process: Cli) -> Cli:
    return in_process


def failure(status: str, kind: str, message: str) -> dict[str, Any]:
    error = {"type": kind, "message": message, "traceback": f"Traceback of {message}", "log": f"log of {message}"}
    return {"status": status, "score": None, "output": None, "seconds": 0.5, "error": error}


def failing(numbers: Container[int]) -> Evaluate:
    """A program that fails on these training rows."""

    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        at = int(data["text"].split()[1])
        return failure("program_error", "KeyError", f"row {at} broke") if at in numbers else scored(data, candidate)

    return evaluate


def learned(**given: Any) -> Script:
    """A program whose seed already knows a word, so that scores differ."""
    return Script(seed={"rules": "red"}, datasets={"train": rows(15)}, **given)


def test_a_good_server_passes_and_the_cost_of_a_run_is_stated(serve: Serve, cli: Cli) -> None:
    ended = cli("check", serve(learned()), "--max-metric-calls", 3000)
    assert ended.status == 0, ended.stdout
    assert "ok evaluate: 15 examples, none failed" in ended.stdout
    assert "ok scores: 0 to 1" in ended.stdout
    same = (
        "ok noise: none: 15 rows evaluated 2 times had the same scores and outputs, so the program looks deterministic"
    )
    assert same in " ".join(ended.stdout.split())
    assert re.search(r"3,000 metric calls would take \S+ \S+ to \S+ \S+, reflection not counted", ended.stdout)
    assert "red found" in ended.stdout


def test_a_misspelt_component_is_answered_with_the_components_and_the_nearest_name(serve: Serve, cli: Cli) -> None:
    ended = cli("check", serve(learned(evaluate=lambda *_: failure("program_error", "KeyError", "'rule'"))))
    known = "did you mean 'rules'?; components: rules; fields of this row: text, need"
    assert f"KeyError: 'rule' ({known})" in ended.stdout


def test_more_rows_are_tried_while_failures_may_be_within_the_limit(serve: Serve, cli: Cli) -> None:
    def script(numbers: set[int]) -> Script:
        return Script(seed={"rules": "red"}, datasets={"train": rows(34)}, evaluate=failing(numbers))

    within = cli("check", serve(script({1, 3, 0})))  # 2 of the 15 that are tried first
    assert "check: trying 19 more rows: 2 of 15 failed, and fewer may of more …" in within.stdout
    assert "3 of 34 examples failed" in within.stdout
    assert within.status == 0, within.stdout
    beyond = cli("check", serve(script({1, 3, 0, 30})))
    assert "the program failed on 4 of 34 examples; 10 % are tolerated" in beyond.stdout
    assert beyond.status == 1
    hopeless = cli("check", serve(script({1, 3, 4, 7, 10})))  # more than 10 % of all rows
    assert "more rows" not in hopeless.stdout
    assert hopeless.status == 1


def test_at_most_15_rows_are_tried_spread_over_all_and_not_at_equal_distances(serve: Serve, cli: Cli) -> None:
    script = Script(seed={"rules": "red green blue"}, datasets={"train": rows(60)})
    report = json.loads(cli("check", serve(script), "--json").stdout)
    tried = [example["row"] for example in report["examples"]]
    assert [row // 4 for row in tried] == list(range(15))
    assert {row % 4 for row in tried} == {0, 1, 2, 3}


def test_rows_that_are_kept_for_the_test_are_not_tried(serve: Serve, cli: Cli) -> None:
    program = learned()
    ended = cli("check", serve(program), "--test-fraction", 0.2, "--json")
    assert ended.status == 0, ended.stdout
    assert len({each["id"] for each in ended.event("check")["examples"] if str(each["row"]) == each["id"]}) == 12
    assert len({row["id"] for call in program.calls("evaluate") for row in call["batch"]}) == 12


def test_a_score_without_feedback_is_a_warning(serve: Serve, cli: Cli) -> None:
    def silent(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        return {**scored(data, candidate), "feedback": None}

    def default(params: dict[str, Any]) -> dict[str, Any]:
        return {
            "dataset": {"rules": [{"Feedback": f"Score: {each['score']}"} for each in params["eval_batch"]["results"]]}
        }

    ended = cli("check", serve(learned(evaluate=silent, reflect=default)))
    assert ended.status == 0
    assert "whose feedback is the score alone: have `score` return feedback beside the number" in ended.stdout
    own = cli("check", serve(learned(evaluate=silent, reflect=lambda _: {"dataset": {"rules": [{"Feedback": "why"}]}})))
    assert "ok reflective dataset" in own.stdout


def test_results_that_break_the_contract_are_a_failed_step_and_no_infrastructure_error(serve: Serve, cli: Cli) -> None:
    ended = cli("check", serve(learned(replies={"evaluate": lambda _: {"results": [{"status": "fine"}]}})))
    assert ended.status == 1
    assert "failed evaluate: the server breaks the contract: BadResponse: the answer does not fit" in ended.stdout
    assert "ok evaluate" not in ended.stdout
    assert "infrastructure" not in ended.stdout


def test_more_than_a_tenth_of_system_errors_fails_and_five_are_shown_in_full(serve: Serve, cli: Cli) -> None:
    ended = cli("check", serve(learned(evaluate=failing(range(7)))))
    assert ended.status == 1
    assert "failed evaluate: the program failed on 7 of 15 examples" in ended.stdout
    for at in range(5):
        assert f"row {at} (id {at}): KeyError: row {at} broke" in ended.stdout
        assert f"Traceback of row {at} broke\nrow {at} wrote:\nlog of row {at} broke" in ended.stdout
    assert "Traceback of row 5 broke" not in ended.stdout
    assert "and 2 more errors" in ended.stdout
    few = cli("check", serve(Script(seed={"rules": "red"}, datasets={"train": rows(5)}, evaluate=failing({0}))))
    assert "failed evaluate: the program failed on 1 of 5 examples" in few.stdout
    later = learned()
    later.evaluate = lambda *given: (failing(range(15)) if len(later.calls("evaluate")) > 15 else scored)(*given)
    assert "failed evaluate: the program failed on 15 of 30 examples" in cli("check", serve(later)).stdout


def answering(output: Callable[[dict[str, Any]], Any], score: Callable[[int], float] = lambda _: 0.0) -> Evaluate:
    """A program whose output and score depend on the row alone; `score` gets the row's number."""

    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        at = int(data["text"].split()[1])
        return {**scored(data, candidate), "score": score(at), "output": output(data)}

    return evaluate


@pytest.mark.parametrize(
    "output", [lambda _: {"answer": " ", "steps": []}, lambda data: "unknown" if data["need"] == "red" else None]
)
def test_scores_of_0_on_all_rows_fail_if_the_outputs_are_equal_or_empty(
    serve: Serve, cli: Cli, output: Callable[[dict[str, Any]], Any]
) -> None:
    script = Script(seed={"rules": "guess"}, datasets={"train": rows(60)}, evaluate=answering(output))
    ended = cli("check", serve(script))
    assert ended.status == 1
    assert "failed scores: every score is 0 and every output is e" in " ".join(ended.stdout.split())
    assert len(script.calls("evaluate")) == 45


def test_a_run_with_scores_of_0_alone_is_started_only_after_a_warning(serve: Serve, cli: Cli) -> None:
    script = Script(seed={"rules": "guess"}, datasets={"train": rows(60)}, evaluate=answering(lambda _: "unknown"))
    url = serve(script)
    refused = cli("optimize", url, "--max-metric-calls", 20)
    assert refused.status == 1
    assert "--check warn` starts one all the same, after all other checks" in " ".join(refused.stderr.split())
    warned = cli("optimize", url, "--max-metric-calls", 20, "--check", "warn")
    assert warned.status == 0
    assert "check: every score is 0 and every output is the same" in " ".join(warned.stdout.split())
    assert "the server offers" not in warned.stdout, "steps without findings are not stated"


def test_more_rows_are_tried_until_one_scores(serve: Serve, cli: Cli) -> None:
    evaluate = answering(lambda data: data["text"], lambda at: float(at == 33))
    script = Script(seed={"rules": "guess"}, datasets={"train": rows(60)}, evaluate=evaluate)
    report = json.loads(cli("check", serve(script), "--json").stdout)
    assert report["passed"]
    assert [step["verdict"] for step in report["steps"] if step["name"] == "scores"] == ["ok"]
    assert len({example["row"] for example in report["examples"]}) == len(report["examples"]) == 45
    assert [params["capture_traces"] for params in script.calls("evaluate")] == [True] * 15 + [False] * 45
    assert len(script.calls("make_reflective_dataset")[0]["eval_batch"]["batch"]) == 15


def test_scores_of_0_on_all_rows_are_a_warning_if_the_outputs_differ(serve: Serve, cli: Cli) -> None:
    script = Script(seed={"rules": "guess"}, datasets={"train": rows(50)})
    ended = cli("check", serve(script))
    assert ended.status == 0, ended.stdout
    assert "warning scores: every score is 0 on the 50 rows tried: " in ended.stdout
    assert len(script.calls("evaluate")) == 65
    script.evaluate = lambda *given: {**scored(*given), "feedback": "expected undefined"}
    undefined = cli("check", serve(script)).stdout
    assert "every score is 0 on the 50 rows tried, and every feedback is 'expected undefined': " in undefined


def test_scores_above_the_perfect_score_are_a_finding(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    url = serve(Script(datasets={"train": rows(15)}, evaluate=answering(lambda data: data["text"], lambda at: 40 + at)))
    ended = cli("check", url)
    assert ended.status == 1
    shown = " ".join(ended.stdout.split())
    assert "failed scores: every score (40 to 54) is above the perfect score of 1" in shown
    assert "`perfect_score` 100" in shown
    assert cli("check", url, "--perfect-score", 100).status == 0
    (tmp_path / "run.toml").write_text("skip_perfect_score = false\n")
    assert cli("check", url, "--config", "run.toml").status == 0
    some = Script(datasets={"train": rows(15)}, evaluate=answering(lambda data: data["text"], lambda at: at % 3))
    shown = cli("check", serve(some)).stdout
    assert "warning scores: 5 of 15 scores are above" in " ".join(shown.split())
    assert shown.splitlines()[-1].endswith("--perfect-score 10.0")


def test_no_more_rows_are_tried_than_the_limits_of_the_run_allow(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        return {**scored(data, candidate), "usage": {"models": {"m": {"input_tokens": 10_000, "output_tokens": 0}}}}

    script = Script(seed={"rules": "guess"}, datasets={"train": rows(200)}, evaluate=evaluate)
    assert cli("check", serve(script), "--max-metric-calls", 20).status == 0
    assert len(script.calls("evaluate")) == 20
    (tmp_path / "run.toml").write_text("max_cost_usd = 0.4\n[model_prices]\nm = [1, 1]\n")
    script.seen.clear()
    assert cli("check", serve(script), "--config", "run.toml").status == 0
    assert len(script.calls("evaluate")) == 45
    for limit, calls in ((("--max-metric-calls", 44), 30), (("--config", "run.toml"), 45)):
        again = learned(evaluate=evaluate)
        assert cli("check", serve(again), "--repeats", 9, *limit).status == 0
        assert len(again.calls("evaluate")) == calls


def test_all_scores_0_are_accepted_while_the_whole_seed_is_empty(serve: Serve, cli: Cli) -> None:
    ended = cli("check", serve(Script(seed={"style": "", "rules": " \n"}, datasets={"train": rows(15)})))
    assert ended.status == 0
    assert "ok scores: the seed's texts are empty (style, rules)" in ended.stdout


def test_a_reflective_dataset_that_fails_or_is_empty_fails_the_check(serve: Serve, cli: Cli) -> None:
    def broken(_: dict[str, Any]) -> Any:
        raise ProgramFailed(stage="make_reflective_dataset", log_tail="IndexError: here")

    ended = cli("check", serve(learned(reflect=broken)))
    assert ended.status == 1
    assert "IndexError: here" in ended.stdout
    ended = cli("check", serve(learned(reflect=lambda _: {"dataset": {"rules": []}})))
    assert ended.status == 1
    assert "reflection would have nothing to read" in ended.stdout


@pytest.mark.parametrize(
    ("status", "error", "verdict", "shown"),
    [
        (200, None, "ok", r"by openai/own, which answered one call in [\d.]+ s for \$"),
        (401, "Incorrect API key provided", "failed", "Incorrect API key provided"),
        (503, "loading", "warning", r"loading \(a run calls it again\)"),
    ],
)
def test_the_reflection_model_is_called_once_before_a_budget_is_spent(
    serve: Serve, in_fork: Cli, host: Host, status: int, error: str | None, verdict: str, shown: str
) -> None:
    script, called = learned(), []

    async def complete(request: web.Request) -> web.Response:
        called.append(request.path)
        if error is None:
            return await script.complete(request)
        return web.json_response({"error": {"message": error}}, status=status)

    url, model = serve(script), host.serve(complete, "/v1/chat/completions")
    arguments = {"api_base": model.removesuffix("/chat/completions"), "api_key": "k"}
    named = ("--reflection-lm", "openai/own", "--model-prices", '{"openai/own": [100, 200]}')
    ended = in_fork("check", url, *named, "--reflection-lm-kwargs", json.dumps(arguments))
    assert called == ["/v1/chat/completions"]
    [found] = [each for each in " ".join(ended.stdout.split()).split(" noise: ") if " proposals: " in each]
    assert re.search(f"{verdict} proposals: .*{shown}", found)
    assert ended.status == int(verdict == "failed")


def test_optimize_checks_first_and_does_not_start_when_the_check_fails(serve: Serve, cli: Cli, tmp_path: Any) -> None:
    script = learned(evaluate=failing(range(15)))
    ended = cli("optimize", serve(script), "--max-metric-calls", 50)
    assert ended.status == 1
    assert "no run was started" in ended.stderr
    assert not [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    calls = len(script.calls("evaluate"))
    (tmp_path / "no.db").mkdir()
    assert cli("optimize", serve(script), "--max-metric-calls", 50, "--store", "no.db").status == 2
    assert len(script.calls("evaluate")) == calls


def test_unscored_results_pass_if_another_server_scores_them(serve: Serve, cli: Cli) -> None:
    def unscored(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        return {**scored(data, candidate), "status": "rollout", "score": None}

    url = serve(learned(evaluate=unscored))
    scorer = serve(Script(capabilities=("scoring",)))
    assert f"ok scores: by {scorer}" in cli("check", url, "--score-with", scorer, "--score-with", CLOSED).stdout
    absent = cli("check", url, "--score-with", CLOSED)
    assert absent.status == 2
    assert f"failed scores: no scoring server is reachable: cannot connect to {CLOSED}" in absent.stdout


def test_the_first_server_that_answers_is_tried_and_the_estimate_counts_all_and_invents_no_plan(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.txt"
    fleet.write_text(f"{CLOSED}\n{serve(learned())}\n{serve(learned(max_concurrency=24))}\n")
    report = json.loads(cli("check", "--fleet", fleet, "--json").stdout)
    verdicts = [(step["name"], step["verdict"]) for step in report["steps"]]
    assert verdicts[:2] == [("handshake", "warning"), ("handshake", "ok")]
    assert verdicts[-1] == ("servers", "failed")
    assert report["steps"][-1]["message"].startswith(f"not compared: cannot connect to {CLOSED}")
    assert report["timing"]["at_once"] == 32
    assert report["timing"]["budget"] == 1000
    (tmp_path / "run.toml").write_text("max_seconds = 60\nconcurrency = 5\n")
    ended = cli("check", serve(learned()), "--config", "run.toml")
    assert "up to 5 at once over all servers and processes\n" in ended.stdout
    assert "metric calls" not in ended.stdout
    assert "--max-metric-calls" not in ended.stdout


CODE = {GIT_BRANCH: git_branch("main", "1" * 40), ADDED_COMPONENTS: "{}"}
MODEL = ("--reflection-lm", "openai/none", "--reflection-lm-kwargs", '{"api_key": "x"}')


@pytest.fixture(autouse=True)
def _model(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the models that a test names answer."""
    url = host.serve(Script().complete, "/chat/completions")
    monkeypatch.setenv("OPENAI_BASE_URL", url.removesuffix("/chat/completions"))


def evolving(*capabilities: str, **given: Any) -> Script:
    """A program whose candidates name a commit."""
    script = learned(capabilities=("datasets", *capabilities), **given)
    script.seed = CODE | script.seed
    return script


def test_code_that_is_to_evolve_and_cannot_ends_the_check_before_a_row_is_run(serve: Serve, in_fork: Cli) -> None:
    script = evolving("commits")
    ended = in_fork("check", serve(script), *MODEL, "--evolve", "code")
    assert ended.status == 1
    assert "start it with --allow-mutations" in ended.stdout
    assert script.calls("evaluate") == []


def test_scores_of_0_pass_if_code_can_change(serve: Serve, in_fork: Cli) -> None:
    script = evolving("commits", "mutations", evaluate=lambda *_: scored({"need": "nothing"}, {}))
    ended = in_fork("check", serve(script), *MODEL, "--evolve", "code")
    assert ended.status == 0, ended.stdout
    assert "warning scores: every score is 0: a code mutation may fix that" in ended.stdout
    assert script.calls("make_reflective_dataset")[0]["components_to_update"] == [GIT_BRANCH]


@pytest.mark.parametrize(("other", "verdict"), [("program_error", "warning"), ("timeout", "failed")])
def test_code_that_evolves_may_fail_in_the_program_alone(other: str, verdict: str) -> None:
    tried = [
        CheckedExample(row=at, id=str(at), status=status, score=None, seconds=0.0)
        for at, status in enumerate(("program_error", other))
    ]
    assert examples_verdict(tried, evolves=True)[0] == verdict


def test_a_failed_step_is_named_by_its_component_with_its_inputs(serve: Serve, cli: Cli) -> None:
    error = {"type": "ValueError", "message": "no luck"}
    inner = {"component": "solver", "inputs": {"plan": "again"}, "outputs": None, "error": error}
    outer = {"component": "planner", "inputs": {}, "outputs": None, "error": error, "steps": [inner]}
    steps = {"steps": [{"component": "planner", "inputs": {}, "outputs": "x"}, outer]}
    script = learned(evaluate=lambda *_: {**failure("program_error", "ValueError", "no luck"), "trajectory": steps})
    script.capabilities = (*script.capabilities, "refs", "steps")
    ended = cli("check", serve(script))
    shown = " ".join(ended.stdout.split())
    assert 'the first: row 0 failed at component \'solver\' with inputs {"plan": "again"}: ' in shown
    assert all("group" not in params.get("_meta", {}) for params in script.calls("evaluate"))


def test_the_same_error_on_several_rows_is_printed_once_with_what_the_first_wrote(
    serve: Serve, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")

    def fails(row: dict[str, Any], _: dict[str, str]) -> dict[str, Any]:
        error = {"type": "KeyError", "message": "'x'", "log": f"with sk-0123456789abcdef for {row['text']}\n"}
        return {"status": "program_error", "score": None, "output": None, "seconds": 0.0, "error": error}

    printed = cli("check", serve(learned(evaluate=fails))).stdout
    assert len(re.findall("(?m)^rows 0-14: KeyError: 'x'", printed)) == 1
    assert printed.count(" wrote:\nwith [redacted] for row ") == 1
    assert "sk-0123" not in printed


def test_a_program_without_a_score_function_is_offered_writing_one(serve: Serve, cli: Cli) -> None:
    unscored = learned(evaluate=lambda *_: {"status": "rollout", "score": None, "output": "x", "seconds": 0.0})
    url = serve(unscored)
    checked = cli("check", url).stdout
    assert "write `score(example, output)` beside `run`" in checked
    assert "input" not in checked, "a table of rows comes before the message"
    refused = cli("optimize", url, "--max-metric-calls", 20, "--check", "warn")
    assert refused.status == 1
    assert "all the same" not in refused.stderr


def test_a_limit_on_the_time_of_an_example_goes_to_servers_that_support_it_and_fails_at_others(
    serve: Serve, cli: Cli
) -> None:
    script = learned()
    refused = cli("check", serve(script), "--example-timeout-s", 2)
    assert refused.status == 1
    assert "it does not offer `example_timeout`, which `example_timeout_s` needs" in refused.stdout
    assert script.calls("evaluate") == []
    script = learned(capabilities=("proposals", "finalize", "datasets", "example_timeout"))
    assert cli("check", serve(script), "--example-timeout-s", 2).status == 0
    assert {params["_meta"]["example_timeout_s"] for params in script.calls("evaluate")} == {2.0}


def noisy(chance: float) -> Evaluate:
    """Scores of 0 and 1 that change with this chance whenever a row is evaluated."""
    draw = random.Random(1)

    def evaluate(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        result = scored(data, candidate)
        return {**result, "score": abs(result["score"] - (draw.random() < chance))}

    return evaluate


def test_a_program_with_the_same_scores_and_other_outputs_is_not_deterministic() -> None:
    for identical in (True, False):
        found = NoiseReport.of([[1.0, 1.0], [0.0, 0.0]], identical=identical, validation_rows=2, test_rows=None)
        assert found.deterministic is identical


def test_noise_and_the_gains_that_are_easily_missed_are_stated(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    script = Script(seed={"rules": "red green"}, datasets={"train": rows(100), "val": rows(40, 100)})
    script.evaluate = noisy(0.2)
    url = serve(script)
    quiet = json.loads(cli("check", url, "--json", "--examples", 100, "--repeats", 1).stdout)["noise"]
    assert quiet["deterministic"] is quiet["row_noise"] is quiet["mean_noise"] is None
    noise = json.loads(cli("check", url, "--json", "--examples", 100, "--repeats", 4).stdout)["noise"]
    assert noise["deterministic"] is False
    assert noise["row_noise"] == pytest.approx(0.4, abs=0.05)  # of a coin of 0.2: the root of 0.2 * 0.8
    assert noise["mean_noise"] == pytest.approx(noise["row_noise"] / 40**0.5)
    assert noise["validation_rows"] == 40
    assert noise["smallest_gain"] > quiet["smallest_gain"] > 0.2
    [five] = [each for each in noise["needed"] if each["gain"] == 0.05]
    assert five["rows"] > 500
    text = " ".join(cli("check", url).stdout.split())
    assert re.search(r"ok noise: evaluated again, a row's score changes by \d+ points, and the mean of 40", text)
    assert re.search(r"with 40 validation rows, gains under \d+ points may be missed; a gain of 5", text)
    assert "20 proposals take 160 evaluations of a row if none is accepted, 960 if all are" in text
    script.datasets["val"] = rows(RACE_ROWS + 60, 100)
    (tmp_path / "run.toml").write_text('validation = "race"\n')
    raced = " ".join(cli("check", serve(script), "--config", "run.toml").stdout.split())
    assert f"20 proposals take 160 evaluations of a row if none is accepted, {160 + 20 * RACE_ROWS} if all are" in raced


def test_a_program_that_is_taken_to_be_deterministic_and_is_not_is_a_warning(serve: Serve, cli: Cli) -> None:
    script = Script(seed={"rules": "red green"}, datasets={"train": rows(40)})
    script.evaluate = noisy(0.2)
    url = serve(script)
    text = " ".join(cli("check", url, "--deterministic").stdout.split())
    warning = r"warning noise: the program is taken to be deterministic, but row \d+ scored (\S+) and then (\S+) with"
    assert (found := re.search(warning, text)) is not None, text
    assert {found[1], found[2]} == {"0", "1"}
    assert "taken to be deterministic" not in cli("check", url).stdout


def test_the_check_before_a_run_evaluates_each_row_once_and_states_what_the_rows_can_show(
    serve: Serve, cli: Cli
) -> None:
    script = Script(seed={"rules": "red"}, datasets={"train": rows(40)})
    ended = cli("optimize", serve(script), "--max-metric-calls", 40)
    assert "check: 15 rows tried" in ended.stdout
    text = " ".join(ended.stdout.split())
    assert "at the pace of these first calls, which include the program's start, reflection not counted" in text
    assert re.search(r"check: with 40 training rows, gains under \d+ points may be missed", text)
    assert len(script.calls("evaluate")) == 15 + 40


def test_a_slow_start_is_stated_beside_the_time_of_later_calls(serve: Serve, cli: Cli) -> None:
    tried = set()

    def evaluate(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        if row["text"] not in tried:
            time.sleep(1.2)
        tried.add(row["text"])
        return scored(row, candidate)

    script = Script(seed={"rules": "red green"}, datasets={"train": rows(2)}, evaluate=evaluate)
    text = " ".join(cli("check", serve(script), "--deterministic").stdout.split())
    assert re.search(
        r"these first calls, which include the program's start \(evaluated again, [0-9.]+ ms per call: ", text
    )
    assert "had the same scores and outputs" in text
    assert "looks deterministic" not in text


def test_test_rows_that_are_rows_of_another_split_are_named(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    train, test = rows(15), [{**row, "text": f" {row['text']}\n"} for row in rows(20)]
    for name, of_split in (("train", train), ("test", test)):
        (tmp_path / f"{name}.json").write_text(json.dumps(of_split))
    url = serve(learned())
    ended = cli("check", url, "--trainset", "train.json", "--testset", "test.json", "--val-fraction", 0)
    shared = "15 of 20 test rows are training rows too (ids 0, 1, 2, ...): the test score is not of new rows"
    assert f"warning rows: {shared}" in " ".join(ended.stdout.split())


def test_of_several_servers_the_others_are_compared_with_the_first_row_by_row(serve: Serve, cli: Cli) -> None:
    def lowering(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        return scored({**row, "need": row["need"].lower()}, candidate) | ({"output": 0} if row["need"] == "RED" else {})

    right = learned(digest="a", evaluate=lowering)
    right.datasets["train"][7]["need"] = "RED"
    wrong = Script(seed=right.seed, datasets=right.datasets, digest=None)
    equal = Script(seed=right.seed, datasets=right.datasets, digest="b", evaluate=lowering)
    urls = serve(right), serve(wrong)
    ended = cli("check", *urls)
    assert ended.status == 1
    shown = [line.split() for line in ended.stdout.splitlines()]
    assert ["7", urls[0].removesuffix("/rpc"), "1", "0"] in shown
    assert [urls[1].removesuffix("/rpc"), "0", "RED", "missing", "different:", "output"] in shown
    assert f"warning servers: {urls[1].removesuffix('/rpc')}: its program declares no version" in ended.stdout
    assert cli("check", *urls, "--allow-mixed-programs").status == 0
    same = cli("check", urls[0], serve(equal))
    assert same.status == 0, same.stdout
    assert same.stdout.splitlines()[-1].startswith(f"next: evolverpc optimize {urls[0]} http")
    assert len(equal.calls("evaluate")) == 15
    compared = json.loads(cli("check", *urls, "--json").stdout)["compared"]
    assert len(compared) == 30
    assert [each["differs"] for each in compared if each["row"] == "7"] == [None, "output"]
    by_digest = cli("check", urls[0], serve(learned(digest="a")))
    assert "runs the code of" in by_digest.stdout
    wrong.digest, wrong.server_name = "a", "another"  # what such a digest covers is not known
    assert "RED missing" in cli("check", urls[0], serve(wrong)).stdout
