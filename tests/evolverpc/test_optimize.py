"""`evolverpc.optimize`: what it serves, returns and refuses."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import evolverpc
from tests.support.forked_client import ForkServer

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
    assert result.seed_test_score == result.seed_score == pytest.approx(1 / 3)
    assert result.verdict == "improved"
    assert result.best_candidate == evolverpc.load_candidate(result.output, units.seed_candidate)
    assert result.output == folder / "out-1"
    assert result.run_id.endswith("the-units")
    assert repr(result).startswith(f"<Result of run {result.run_id}: completed, score 0.3333 -> ")
    assert "+gram -> mass" in str(result.diff)
    assert "<ins>" in result.diff._repr_html_()
    assert "hint, unchanged" in result.diff._repr_html_()


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
    result = short(program, propose=propose, trainset=rows, valset=folder / "val.jsonl", output=output)
    assert result.output == output
    assert result.best_score > result.seed_score


@pytest.mark.usefixtures("folder")
def test_functions_of_this_process_run_in_its_threads_as_many_at_once_as_it_is_given() -> None:
    together = threading.Barrier(4)
    calls = itertools.count()
    seen = set()

    def run(_: object, texts: dict[str, str]) -> int:
        seen.add(os.getpid())
        if next(calls) < 4:
            together.wait(30)
        return int(texts["number"])

    short(counting(run), concurrency=4, check="off")
    assert seen == {os.getpid()}


@pytest.mark.usefixtures("folder")
def test_what_functions_of_this_process_print_appears_and_is_kept_with_their_example(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    together, calls = threading.Barrier(8), itertools.count()

    def run(example: dict[str, Any], candidate: dict[str, str]) -> int:
        print("before", example["n"])
        if next(calls) < 8:
            together.wait(20)  # all rows of the seed print before any of them continues
        print("after", example["n"], file=sys.stderr)
        if example["n"] == 3:
            raise KeyError("three")
        return int(candidate["number"])

    streams = sys.stdout, sys.stderr
    result = short(counting(run), concurrency=8, no_check=True, ignore_findings=["scores"], output=folder / "out")
    assert (sys.stdout, sys.stderr) == streams
    events = [json.loads(line) for line in (result.output / "events.jsonl").read_text().splitlines()]
    [failed] = [event for event in events if event["event"] == "failed_examples"]
    assert failed["groups"][0]["log"] == "before 3\nafter 3\n"
    assert "before 3\n" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("blocks_a_loop", [False, pytest.param(True, marks=pytest.mark.long)], ids=["thread", "loop"])
def test_an_example_that_hangs_in_this_process_gets_the_failure_score_and_the_run_continues(
    blocks_a_loop: bool,
) -> None:
    hang = threading.Event()

    def run(example: dict[str, Any], texts: dict[str, str]) -> int:
        if example["n"] == 3 and texts != SEED:
            hang.wait(100)
        return 10 * int(texts["number"])

    async def run_in_loop(example: dict[str, Any], texts: dict[str, str]) -> int:
        return run(example, texts)

    program = counting(run_in_loop if blocks_a_loop else run)
    result = short(program, example_timeout_s=0.3, concurrency=4, max_metric_calls=20)
    hang.set()
    assert result.status == "completed"
    assert result.best_score == pytest.approx((7 * 0.1 + sum(range(8)) / 1000 - 0.003) / 8)


PAUSED = """
import sys, threading, os, signal, evolverpc

seed_candidate = {"number": "0"}
ROWS = [{"n": n} for n in range(8)]

def run(example, candidate):
    with open("calls.txt", "a") as file:
        file.write(f"{candidate['number']} {example['n']}\\n")
    return int(candidate["number"])

def score(example, output):
    return output / 100 + example["n"] / 1000

def propose(candidate, dataset, components):
    if candidate["number"] == "2" and not os.path.exists("interrupted"):
        open("interrupted", "w").close()
        os.kill(os.getpid(), signal.SIGINT)
    return {"number": str(int(candidate["number"]) + 1)}

if __name__ == "__main__":
    resume = sys.argv[2] if len(sys.argv) > 2 else None
    program = __file__ if sys.argv[1] == "file" else globals()
    given = {} if resume else {"trainset": ROWS, "valset": ROWS}
    try:
        result = evolverpc.optimize(
            program, propose=propose, max_metric_calls=90, check="off", resume=resume, **given
        )
    except evolverpc.OptimizeError as error:
        print(error)
        result = error.result
    print(result.status, result.best_candidate["number"], result.run_id, result.metric_calls)
"""


@pytest.mark.parametrize("kind", [pytest.param("file", marks=pytest.mark.long), "functions"])
def test_ctrl_c_pauses_the_run_and_resume_continues_it_without_repeating_anything(
    folder: Path, fork_server: ForkServer, kind: str
) -> None:
    (folder / "paused.py").write_text(PAUSED)

    def called(*arguments: str) -> list[str]:
        command = [sys.executable, "paused.py", kind, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "gepa-client resume" not in ended.stdout
        printed.append(ended.stdout)
        return ended.stdout.splitlines()[-1].split()

    printed: list[str] = []
    paused, best, run_id, _ = called()
    assert paused == "paused"
    assert int(best) >= 2  # the optimizer is another process: it may take the proposal before the Ctrl-C reaches it
    assert f'evolverpc.optimize(..., resume="{run_id}")' in printed[0]
    _, stdout, stderr = fork_server.run(["resume", "last"], folder=folder, environment=os.environ)
    assert f'evolverpc.optimize(..., resume="{run_id}") in paused.py' in (stdout + stderr).decode()
    assert "gepa-client resume" not in (stdout + stderr).decode()
    status, final, again, metric_calls = called(run_id)
    assert (status, again) == ("completed", run_id)
    assert int(final) > int(best)
    assert len((folder / "calls.txt").read_text().splitlines()) == int(metric_calls)


def test_ctrl_c_in_the_check_states_what_was_stopped(folder: Path) -> None:
    (folder / "stopped.py").write_text(
        "import evolverpc, os, signal, threading\nseed_candidate = {'a': 'b'}\n"
        "def run(example, candidate):\n    os.kill(os.getpid(), signal.SIGINT)\n    threading.Event().wait(30)\n"
        "def score(example, output): return 1\n"
        "evolverpc.optimize(globals(), trainset=[{'n': 1}], propose=print, max_metric_calls=9)\n"
    )
    ended = subprocess.run([sys.executable, "stopped.py"], capture_output=True, text=True, timeout=60, cwd=folder)
    assert "error: stopped by hand during the check, trying 1 row …\n" in ended.stderr
    assert ended.stderr.endswith(
        "KeyboardInterrupt: the check of a few rows was stopped by hand, so no run was started\n"
    )


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
    assert f"max_metric_calls 3 is less than the {result.metric_calls} metric calls" in str(refused.value)
    assert "--max-metric-calls 3`" in str(refused.value), "the command that it names has flags"


@pytest.mark.usefixtures("folder")
def test_a_run_is_not_resumed_with_another_function_which_is_named() -> None:
    cell = "def run(example, texts): return helper(texts)\ndef helper(texts): return int(texts['number'])\n"
    names: dict[str, Any] = {"__name__": "cell", "seed_candidate": SEED, "score": as_score}
    exec(cell, names)  # noqa: S102  # as a notebook does
    result = short(names)
    exec(cell, names)  # noqa: S102
    assert short(names, resume="last", max_metric_calls=100).run_id == result.run_id
    exec(f"{cell.splitlines()[-1]} + 1", names)  # noqa: S102
    with pytest.raises(evolverpc.OptimizeError, match="function helper has changed"):
        short(names, resume="last", max_metric_calls=200)


@pytest.mark.usefixtures("folder")
def test_on_a_resume_changed_lists_are_warned_of_and_changed_rows_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = "def run(example, texts): return int(texts['number']) + LABELS[0] + len(CACHE)\n"
    names: dict[str, Any] = {"__name__": "cell", "seed_candidate": SEED, "score": as_score, "LABELS": [1], "CACHE": {}}
    exec(cell, names)  # noqa: S102  # as a notebook does
    short(names)
    names |= {"LABELS": [2], "CACHE": {"filled": "later"}}
    assert short(names, resume="last", max_metric_calls=100).status == "completed"
    printed = capsys.readouterr().out
    assert "LABELS, which the program reads, is not what it was when the run began" in " ".join(printed.split())
    assert "CACHE" not in printed
    with pytest.raises(evolverpc.OptimizeError, match=r"data\.train: \w+ -> \w+"):
        short(names, resume="last", max_metric_calls=200, trainset=[*ROWS[1:], {"n": 99}])


@pytest.mark.long
def test_a_script_that_gives_functions_resumes_its_run_after_only_the_call_was_changed(folder: Path) -> None:
    script = PAUSED.partition("    resume =")[0].replace('not os.path.exists("interrupted")', "False") + (
        "    given = {'trainset': ROWS, 'valset': ROWS, 'check': 'off'}\n"
        "    print(evolverpc.optimize(globals(), propose=propose, max_metric_calls=40, **given).run_id)\n"
    )
    ran = []
    for each in (script, script.replace("=40", "=80, resume='last'")):
        (folder / "script.py").write_text(each)
        ended = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=60, cwd=folder)
        assert ended.returncode == 0, ended.stderr
        ran.append(ended.stdout.splitlines()[-1])
    assert ran[0] == ran[1]


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
    "of the server": ({"port": 3}, "`port` is for the command gepa-server"),
    "of the command": ({"repo": "."}, "`repo` is for the command gepa-client"),
    "misspelt of the server": ({"concurency": 2}, "there is no setting `concurency`; did you mean `concurrency`?"),
    "processes": ({"workers": 2}, "an object is served by this process"),
    "no end": ({"max_metric_calls": None}, "no limit ends the run: give max_metric_calls N (or auto"),
    "wrong kind": ({"patience": "x"}, "patience: must be a valid integer (given: 'x')"),
    "two proposers": ({"reflection_lm": "openai/x"}, "`propose` and `reflection_lm` both propose new texts"),
    "no proposer": ({"propose": None}, "nothing proposes new texts: give reflection_lm MODEL"),
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
    "no file": ({"trainset": "nope.jsonl"}, "rows: nope.jsonl: no such file in"),
    "zeros": ({"program": counting(lambda *_: 0) | {"score": lambda *_: 0}}, "check warn starts"),
    "errors": ({"program": counting(lambda *_: 1 // 0)}, "row 0: ZeroDivisionError"),
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


def test_every_public_name_is_there_and_a_result_is_loaded_without_the_optimizer() -> None:
    assert all(getattr(evolverpc, name) is not None for name in evolverpc.__all__)
    assert dir(evolverpc) == sorted(evolverpc.__all__)
    code = (
        "import sys, evolverpc; evolverpc.load_candidate; print(sorted(set(sys.modules) & {'pydantic', 'gepa_client'}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert ended.stdout == "[]\n"
