"""Rows and outputs of `evolverpc.optimize` arrive as they are, and a proposal that is no text is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

import evolverpc

WEI = 1_500_000_000_000_000_000_001
ODD = {
    "wei": [-WEI, {"n": WEI}],
    "pair": (1, ("a", WEI)),
    "by": {1: "one", None: 2.5},
    "half": "smile \ud83d",
    "$exact": 5,
}


def again(candidate: dict[str, str], records: object, components: list[str]) -> dict[str, Any]:
    return {name: candidate[name] + " x" for name in components}


def run_of(rows: Any, run: Any, propose: Any = again, **more: Any) -> evolverpc.Result:
    def score(row: Any, output: Any) -> float:
        return 1.0 if output == row["wei"] and type(output) is type(row["wei"]) else 0.0

    program = {"seed_candidate": {"prompt": "p"}, "run": run, "score": score}
    given = {"max_metric_calls": 14, "check": "warn", "val_fraction": 0, "past_perfect": True}
    return evolverpc.optimize(program, trainset=rows, propose=propose, **(given | more))


def test_a_program_gets_rows_of_objects_and_files_as_they_are_and_a_resumed_run_too(folder: Path) -> None:
    seen: list[Any] = []
    rows = [{**ODD, "number": number} for number in range(3)]
    of_file = [{"wei": WEI + number, "half": "\ud83d"} for number in range(4)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, of_file)))

    def run(row: Any, _: Any) -> Any:
        seen.append(row)
        return row["wei"]

    result = run_of(rows, run, valset="rows.jsonl")
    assert result.seed_score == 1
    assert {repr(row) for row in seen} == {repr(row) for row in [*rows, *of_file]}
    assert "$exact" not in (result.output / "report.html").read_text()
    seen.clear()
    longer = run_of(rows, run, valset="rows.jsonl", resume=result.run_id, max_metric_calls=30)
    assert longer.seed_score == 1
    assert {repr(row) for row in seen} <= {repr(row) for row in [*rows, *of_file]}
    assert seen


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("proposed", ["half \ud83d", None])
def test_a_proposal_that_is_no_text_is_refused_and_the_run_continues(
    proposed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"wei": number} for number in range(4)]
    result = run_of(rows, lambda _, texts: len(texts["prompt"]), lambda *_: {"prompt": proposed}, max_metric_calls=40)
    assert (result.status, len(result.candidates)) == ("completed", 1)
    assert "the proposed text is no text of Unicode and was dropped" in capsys.readouterr().out
