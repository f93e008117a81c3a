"""A new scorer over the outputs a run recorded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.errors import Overloaded
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.stored_run import RUN_ID, Made, put
from tests.gepa_client.word_program import Script


def shorter(params: dict[str, Any]) -> dict[str, Any]:
    """The fewer words an output has, the better; none at all is a mistake."""
    [result] = params["results"]
    assert result["status"] == "rollout"
    words = len(result["output"].split())
    if not words:
        error = {"type": "ValueError", "message": "no text"}
        return {"results": [{**result, "status": "program_error", "error": error}]}
    return {"results": [{**result, "status": "ok", "score": 1.0 / words}]}


def scorer(score: Callable[[dict[str, Any]], Any] = shorter) -> Script:
    return Script(capabilities=("scoring", "idempotency", "async"), replies={"score": score})


def test_recorded_outputs_are_scored_anew_and_the_best_by_each_is_named(cli: Cli, serve: Serve, tmp_path: Path) -> None:
    put(tmp_path / "runs" / "evolverpc.db", Made(broken=frozenset({(4, 1)}), absent=frozenset({(3, 2)})))
    script = scorer()
    ended = cli("rescore", "last", "--with", serve(script))
    assert ended.status == 0, ended.stderr
    rows = [line.split() for line in ended.stdout.splitlines()]
    assert ["0", "0.0000", "0.0000", "4"] in rows  # the scorer fails on its empty outputs
    assert ["3", "0.0000", "1.0000", "3", "1"] in rows  # of the rows that have an output
    assert ["4", "0.7500", "0.2500", "3", "1"] in rows
    assert "best by the old scores: candidate 2; by the new ones: candidate 1" in ended.stdout
    assert "the scorer failed on 4 outputs, which score 0; for instance:\n  row 0: ValueError: no text" in ended.stdout
    assert ended.stdout.splitlines()[-1] == f"next: evolverpc show {RUN_ID} --candidate 1"
    assert len(script.calls("score")) == 18
    assert not script.calls("evaluate")
    assert {len(params["batch"]) for params in script.calls("score")} == {1}


def test_a_scorer_that_is_busy_is_asked_again(cli: Cli, serve: Serve, tmp_path: Path) -> None:
    put(tmp_path / "runs" / "evolverpc.db", Made(texts=("", "red", "red\ngreen", "red", "red\ngreen\nblue")))
    asked: list[str] = []

    def busy_at_first(params: dict[str, Any]) -> Any:
        asked.append(params["batch"][0]["id"])
        if len(asked) == 1:
            raise Overloaded(retry_after_s=0.01)
        if len(asked) == 2:
            error = {"type": "Oops", "message": "later"}
            return {"results": [{**params["results"][0], "status": "infra_error", "error": error}]}
        return shorter(params)

    ended = cli("rescore", "last", "--with", serve(scorer(busy_at_first)), "--json")
    assert ended.status == 0, ended.stderr
    assert [one["missing"] for one in json.loads(ended.stdout)["candidates"]] == [0] * 5
    assert len(asked) == 18, "an output that two candidates gave on a row is scored once"


def test_a_server_that_does_not_score_is_named(cli: Cli, serve: Serve, words: Script, tmp_path: Path) -> None:
    put(tmp_path / "runs" / "evolverpc.db", Made())
    url = serve(words)
    ended = cli("rescore", "last", "--with", url)
    assert ended.status == 2
    assert f"{url} does not score" in ended.stderr
