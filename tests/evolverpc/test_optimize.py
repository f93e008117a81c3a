"""`evolverpc.optimize`: what it serves, returns and refuses."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import requests

import evolverpc
from tests.gepa_client.scripted_server import Host
from tests.gepa_client.word_program import Script
from tests.support.forked_client import ForkServer
from tests.support.notebook_cells import run_cell

SEED = {"number": "0"}
ROWS = [{"n": n} for n in range(8)]


def count_up(candidate: dict[str, str], dataset: object, components: list[str]) -> dict[str, str]:
    return {"number": str(int(candidate["number"]) + 1)}


def as_score(example: dict[str, Any], output: int) -> float:
    return output / 100 + example["n"] / 1000


def counting(run: Callable[..., Any]) -> dict[str, Any]:
    """A program whose score is the number in its text."""
    return {"seed_candidate": SEED, "run": run, "score": as_score}


def short(program: object, **more: Any) -> evolverpc.Result:
    """A short run of a program that counts."""
    given = {"trainset": ROWS, "valset": ROWS, "propose": count_up, "max_metric_calls": 60}
    return evolverpc.optimize(program, **{**given, **more})


def test_the_result_has_the_texts_and_scores_of_seed_and_best(units: ModuleType, folder: Path) -> None:
    result = units.optimized(vars(units), 1, name="the units")
    assert result.status == "completed"
    assert result.candidates[0].texts == units.seed_candidate
    assert result.best_score > result.seed_score
    assert (result.test_score or 0) > (result.seed_test_score or 0) == result.seed_score == pytest.approx(1 / 3)
    assert result.verdict == "improved"
    assert result.best_candidate == evolverpc.load_candidate(result.output, units.seed_candidate)
    assert result.output == folder / "out-1"
    assert result.run_id.endswith("the-units")
    assert [kept.parents for kept in result.candidates[:2]] == [[], [0]]
    assert repr(result).startswith(f"<Result of run {result.run_id}: completed, score 0.3333 -> ")
    assert "+gram -> mass" in str(result.diff)
    assert "<ins>" in result.diff._repr_html_()
    assert "hint, unchanged" in result.diff._repr_html_()
    assert {*result.candidates[0].val_scores} == {str(row) for row in range(18)}


def test_rows_may_come_from_any_iterable_or_a_file_and_functions_may_be_async(folder: Path) -> None:
    async def run(_: object, texts: dict[str, str]) -> int:
        await asyncio.sleep(0)
        return int(texts["number"])

    async def propose(candidate: dict[str, str], dataset: object, components: list[str]) -> dict[str, str]:
        return count_up(candidate, dataset, components)

    (folder / "val.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    output = folder / "here"
    rows = (row for row in ROWS)
    program = SimpleNamespace(**counting(run))
    held = {"testset": "held", "datasets": {"held": folder / "val.jsonl"}}
    result = short(program, propose=propose, trainset=rows, valset=folder / "val.jsonl", output=output, **held)
    assert result.test_score == pytest.approx(result.best_score)
    assert result.output == output
    assert result.best_score > result.seed_score


def test_functions_run_in_threads_of_this_process_and_what_they_print_is_kept_with_their_example(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    together, calls = threading.Barrier(8), itertools.count()
    seen = set()
    host = Host()
    model = host.serve(Script().complete, "/v1/chat/completions")

    def run(example: dict[str, Any], candidate: dict[str, str]) -> int:
        seen.add(os.getpid())
        print("before", example["n"])
        if next(calls) < 8:
            together.wait(20)  # all rows of the seed print before any of them continues
        print("after", example["n"], file=sys.stderr)
        if example["n"] == 3:
            raise KeyError("three")
        return int(candidate["number"])

    def propose(candidate: dict[str, str], dataset: object, components: list[str]) -> dict[str, str]:
        requests.post(model, json={"model": "m", "messages": [{"content": ""}]}, timeout=20)
        return count_up(candidate, dataset, components)

    streams = sys.stdout, sys.stderr
    options = {"concurrency": 8, "no_check": True, "ignore_findings": ["scores"], "model_prices": {"m": (1, 1)}}
    result = short(counting(run), propose=propose, output=folder / "out", **options)
    host.close()
    assert result.spent_usd > 0
    assert (sys.stdout, sys.stderr) == streams
    assert seen == {os.getpid()}
    events = [json.loads(line) for line in (result.output / "events.jsonl").read_text().splitlines()]
    [failed] = [event for event in events if event["event"] == "failed_examples"]
    assert failed["groups"][0]["log"] == "before 3\nafter 3\n"
    assert "before 3\n" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_steps_of_functions_of_this_process_are_recorded() -> None:
    steps: list[dict[str, Any]] = []

    def run(example: dict[str, Any], candidate: dict[str, str]) -> int:
        with evolverpc.step("number") as step:
            step.outputs = int(candidate["number"])
        return int(step.outputs)

    def score(example: dict[str, Any], output: int, trajectory: dict[str, Any]) -> float:
        steps.extend(trajectory["steps"])
        return as_score(example, output)

    short({"seed_candidate": SEED, "run": run, "score": score}, max_metric_calls=20)
    assert {(step["component"], step["outputs"]) for step in steps} >= {("number", 0), ("number", 1)}


def test_an_example_that_hangs_in_this_process_gets_the_failure_score_and_the_run_continues() -> None:
    hang = threading.Event()

    def run(example: dict[str, Any], texts: dict[str, str]) -> int:
        if example["n"] == 3 and texts != SEED:
            hang.wait(100)
        return 10 * int(texts["number"])

    streams = sys.stdout, sys.stderr
    result = short(counting(run), example_timeout_s=0.3, concurrency=4, max_metric_calls=20)
    assert (sys.stdout, sys.stderr) == streams
    hang.set()
    assert result.status == "completed"
    assert result.best_score == pytest.approx((7 * 0.1 + sum(range(8)) / 1000 - 0.003) / 8)


def test_ctrl_c_pauses_the_run_and_resume_continues_it_without_repeating_anything(
    folder: Path, fork_server: ForkServer, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, interrupted = itertools.count(), threading.Event()

    def run(_: object, texts: dict[str, str]) -> int:
        next(calls)
        return int(texts["number"])

    def propose(candidate: dict[str, str], dataset: object, components: list[str]) -> dict[str, str]:
        if candidate["number"] == "2" and not interrupted.is_set():
            interrupted.set()
            os.kill(os.getpid(), signal.SIGINT)
        return count_up(candidate, dataset, components)

    given: dict[str, Any] = {"propose": propose, "max_metric_calls": 90, "check": "off"}
    with pytest.raises(evolverpc.OptimizeError) as stopped:
        short(counting(run), **given)
    paused = stopped.value.result
    assert paused is not None
    assert paused.status == "paused"
    best = int(paused.best_candidate["number"])
    assert best >= 2  # the optimizer is another process: it may take the proposal before the Ctrl-C reaches it
    again = f"evolverpc.optimize(..., resume='{paused.run_id}')"
    assert again in capsys.readouterr().out
    _, stdout, stderr = fork_server.run(["resume", "last"], folder=folder, environment=os.environ)
    assert again in (stdout + stderr).decode()
    result = short(counting(run), resume=paused.run_id, **given)
    assert (result.status, result.run_id) == ("completed", paused.run_id)
    assert int(result.best_candidate["number"]) > best
    assert next(calls) == result.metric_calls
    assert "evolverpc resume" not in (stdout + stderr).decode() + capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_ctrl_c_in_the_check_states_what_was_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    def run(_: object, __: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        ended.wait(30)

    with pytest.raises(evolverpc.OptimizeError, match="stopped by hand, so no run began") as stopped:
        short(counting(run), trainset=ROWS[:1])
    assert stopped.value.run_id is None
    ended.set()
    assert "error: stopped by hand during the check, trying 1 row …\n" in capsys.readouterr().err


def test_a_script_whose_call_is_not_below_its_guard_fails_once_with_the_remedy(folder: Path) -> None:
    (folder / "bare.py").write_text(
        "import evolverpc\nprint('imported')\nseed_candidate = {'a': 'b'}\ndef run(example, candidate): return 1\n"
        "def score(example, output): return output\n"
        "evolverpc.optimize(__file__, trainset=[{'n': 1}], propose=print, max_metric_calls=9)\n"
    )
    ended = subprocess.run([sys.executable, "bare.py"], capture_output=True, text=True, timeout=60, cwd=folder)
    assert ended.returncode == 1
    assert 'below `if __name__ == "__main__":`' in ended.stderr
    assert ended.stdout == "imported\n"


def test_a_module_by_its_name_runs_in_processes_and_a_resume_with_a_smaller_budget_is_refused(folder: Path) -> None:
    (folder / "counts.py").write_text(
        "import os\nseed_candidate = {'number': '0'}\ndef run(example, candidate): return int(candidate['number'])\n"
        f"def score(example, output): return (output + 1) / 100 if os.getpid() != {os.getpid()} else -1\n"
    )
    result = short("counts")
    assert result.best_score > result.seed_score > 0
    with pytest.raises(evolverpc.OptimizeError) as refused:
        short("counts", resume=result.run_id, max_metric_calls=3)
    assert f"`max_metric_calls` 3 is less than the {result.metric_calls} metric calls" in str(refused.value)


@pytest.mark.usefixtures("folder")
def test_a_resume_warns_of_changed_lists_and_is_refused_with_other_functions_or_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = (
        "def run(example, texts): return helper(texts) + len(CACHE)\n"
        "def helper(texts): return int(texts['number']) + LABELS[0]\n"
    )
    names: dict[str, Any] = {"__name__": "cell", "seed_candidate": SEED, "score": as_score, "LABELS": [1], "CACHE": {}}
    run_cell(cell, names)
    result = short(names)
    names |= {"LABELS": [2], "CACHE": {"filled": "later"}}
    run_cell(cell, names)
    assert short(names, resume="last", max_metric_calls=100).run_id == result.run_id
    printed = capsys.readouterr().out
    assert "LABELS, which the program reads, is not what it was when the run began" in " ".join(printed.split())
    assert "CACHE" not in printed
    with pytest.raises(evolverpc.OptimizeError, match=r"data\.train: \w+ -> \w+"):
        short(names, resume="last", max_metric_calls=200, trainset=[*ROWS[1:], {"n": 99}])
    run_cell(f"{cell.splitlines()[-1]} + 1\n", names)
    with pytest.raises(evolverpc.OptimizeError, match="function helper has changed"):
        short(names, resume="last", max_metric_calls=200)


@pytest.mark.usefixtures("folder")
def test_a_proposer_that_raises_or_returns_nonsense_ends_the_run_with_its_reason() -> None:
    def broken(*_: object) -> object:
        raise KeyError("the proposer's own")

    for propose, reason in (
        (broken, "the proposer's own"),
        (lambda *_: {"numbre": "1"}, "propose() returned a text for 'numbre'"),
    ):
        with pytest.raises(evolverpc.OptimizeError) as failed:
            short(counting(lambda *_: 0), propose=propose)
        error = failed.value
        assert str(error).startswith(f"run {error.run_id} is failed: ")
        assert reason in str(error)
        assert error.result is not None
        assert error.result.best_candidate == error.result.candidates[0].texts


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt": ({"max_metric_cals": 3}, "no setting `max_metric_cals`; did you mean `max_metric_calls`?"),
    "of the server": ({"port": 3}, "`port` needs `evolverpc serve`"),
    "of the command": ({"repo": "."}, "`repo` is for the command `evolverpc optimize`"),
    "rows as datasets": ({"datasets": {"train": ROWS}}, "`datasets`: train: "),
    "no such command": ({"program": None, "command": ["no-such-program"]}, "there is no command 'no-such-program'"),
    "processes": ({"workers": 2}, "an object is served by this process"),
    "two proposers": ({"reflection_lm": "openai/x"}, "`propose` and `reflection_lm` both propose new texts"),
    "no proposer": ({"propose": None}, "nothing proposes new texts: give `reflection_lm`"),
    "texts as rows": ({"trainset": ["a"]}, "trainset: row 0 is a str: give a list of dicts, or a file"),
    "not JSON": ({"testset": [{}, {"n": {1}}]}, "testset: row 1: n is of type set, which JSON lacks"),
    "no program": ({"program": None}, "`program` is missing: give the path of a Python file"),
    "no file": ({"program": "uints.py"}, "uints.py (did you mean units.py?)"),
    "no function": ({"program": {"seed_candidate": {}}}, "has no function `run(example, candidate)`"),
    "a function alone": ({"program": count_up}, "`program` is the function count_up alone: give functions as in"),
    "no run of the store": ({"resume": "last"}, "no store at runs/evolverpc.db: no run was started there"),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_named_and_nothing_is_begun(case: str) -> None:
    given, message = BAD[case]
    usual = {"program": counting(lambda *_: 0), "trainset": ROWS, "propose": count_up, "max_metric_calls": 9}
    with pytest.raises(evolverpc.OptimizeError) as caught:
        evolverpc.optimize(**{**usual, **given})
    assert message in str(caught.value)
    assert not Path("runs").exists()


FAILED: dict[str, tuple[dict[str, Any], str]] = {
    "zeros": (
        {"program": counting(lambda *_: 0) | {"score": lambda *_: 0}},
        "evolverpc.optimize(..., check='warn')` starts",
    ),
    "errors": ({"program": counting(lambda *_: 1 // 0), "no_check": False}, "row 0: ZeroDivisionError"),
}


@pytest.mark.parametrize("case", FAILED)
def test_a_failed_check_starts_no_run_and_its_exception_names_its_findings_and_no_flags(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given, message = FAILED[case]
    with pytest.raises(evolverpc.OptimizeError) as caught:
        short(**{"program": counting(lambda *_: 0), **given})
    assert message in str(caught.value)
    printed = capsys.readouterr()
    assert "--" not in str(caught.value) + printed.out + printed.err
    assert not [*folder.glob("runs/2*")]
