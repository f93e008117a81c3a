"""A run writes a certificate of its gain, which `evolverpc verify` checks, and on which a script can gate."""

import itertools
import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.gepa_client.cli.conftest import Types
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script, rows, scored

RUN = ("--max-metric-calls", 300, "--check", "off")


def without_gain(_row: dict[str, Any], _candidate: dict[str, str]) -> dict[str, Any]:
    return {"status": "ok", "score": 0.5, "output": "the same", "seconds": 0.0}


def test_a_completed_run_is_certified_once_its_range_of_scores_is_declared(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.evaluate = lambda row, candidate: (found := scored(row, candidate)) | {"score": 2 * found["score"] - 1}
    ended = cli("optimize", serve(words), *RUN, "--require", "improved")
    assert ended.status == 4, "a run without a certificate lacks the one that is required"
    text = " ".join(ended.stdout.split())
    assert "scores from -1 to 1 are recorded, but a certificate rests on the range that scores can have" in text
    assert cli("verify", "last").status == 2
    evaluated = len(words.calls("evaluate"))
    again = cli("resume", "last", "--score-range=-1,1")
    assert again.status == 0, again.stdout + again.stderr
    assert len(words.calls("evaluate")) == evaluated
    certificate = json.loads((only_run(tmp_path) / "certificate.json").read_text())
    assert (certificate["verdict"], certificate["test"]["score_range"]) == ("improved", [-1, 1])
    assert cli("verify", "last", "--require", "improved").status == 0


def test_a_gain_is_certified_verified_and_replayed_and_the_certificate_of_before_is_not_valid_any_more(
    serve: Serve, cli: Cli, words: Script, types: Types, tmp_path: Path
) -> None:
    assert cli("optimize", serve(words), "--max-metric-calls", 30, "--check", "off").status == 0
    shutil.copy(only_run(tmp_path) / "certificate.json", tmp_path / "earlier.json")
    ended = cli("resume", "last", "--max-metric-calls", 300, "--require", "improved")
    assert ended.status == 0, ended.stdout + ended.stderr
    earlier = cli("verify", "earlier.json")
    assert earlier.status == 1
    assert "If the run was extended since" in earlier.stderr
    assert "certificate.json is valid" in types(earlier.stderr, "evolverpc verify").stdout
    [committed] = [line for line in ended.stdout.splitlines() if "committed to 12 test rows: " in line]
    [gain] = [line for line in ended.stdout.splitlines() if line.startswith("gain ")]
    assert gain.endswith("improved on 12 sealed test rows")
    file = only_run(tmp_path) / "certificate.json"
    certificate = json.loads(file.read_text())
    assert committed.endswith(certificate["digests"]["test_rows"])
    assert certificate["statement"] in page_text(file.parent / "report.html")
    for named in ("last", certificate["run"], file.parent):
        found = cli("verify", named, "--require", "improved")
        assert "certificate.json is valid: each number follows" in found.stdout, found.stderr
    shown = cli("show", "last")
    assert "is valid: each number follows from the record" in types(shown.stdout, "evolverpc verify").stdout
    (tmp_path / "old.json").write_text(json.dumps(certificate | {"version": 1}))
    old = cli("verify", "old.json", "--require", "improved")
    assert old.status == 2
    text = " ".join(old.stderr.split())
    assert "the format of this certificate has version 1, and evolverpc " in text
    assert " verifies version 4: nothing was checked" in text
    for text, reason in (
        ("{", "not a certificate"),
        ('{"run": "20200101-000000-aaaa"}', "holds no run '20200101-000000-aaaa'"),
    ):
        (tmp_path / "none.json").write_text(text)
        none = cli("verify", "none.json")
        assert (none.status, reason in none.stderr) == (2, True), none.stderr
    assert cli("export", "last", "--output", "run.json").status == 0
    elsewhere = json.loads(cli("verify", file, "--exported", "run.json", "--require", "improved", "--json").stdout)
    assert (elsewhere["valid"], elsewhere["verdict"], elsewhere["mismatches"]) == (True, "improved", [])

    assert cli("import", "run.json", "--store", "other.db").status == 0
    refused = cli("verify", "last", "--store", "other.db")
    assert refused.status == 2
    assert "is not in its folder here: give its file, or write it by" in " ".join(refused.stderr.split())

    file.write_text(json.dumps(certificate | {"test": certificate["test"] | {"seed": 0.5}}))
    wrong = cli("verify", file)
    assert wrong.status == 1
    assert "is not valid: it does not follow from the record" in wrong.stderr
    assert "test.seed: 0.5, but the record gives 0" in wrong.stderr
    for_programs = cli("verify", file, "--json")
    assert (for_programs.status, json.loads(for_programs.stdout)["valid"]) == (1, False)


def test_a_text_of_a_candidate_that_was_changed_in_the_store_is_noticed(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    assert cli("optimize", serve(words), *RUN).status == 0
    with closing(sqlite3.connect(tmp_path / "runs" / "evolverpc.db")) as database, database:
        database.execute(
            "UPDATE entries SET answer = CAST(replace(answer, 'red', 'RED') AS BLOB) WHERE kind = 'candidate'"
        )
    for named in (("replay", "last"), ("export", "last", "--output", "run.json"), ("verify", "last")):
        refused = cli(*named)
        assert refused.status != 0
        assert "unreadable or altered (first: events " in " ".join((refused.stdout + refused.stderr).split())


def test_a_run_without_a_gain_does_not_meet_what_is_required(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.evaluate = without_gain
    ended = cli("optimize", serve(words), "--max-metric-calls", 30, "--check", "off", "--require", "improved", "--json")
    assert ended.status == 4, ended.stderr
    assert (ended.event("summary")["verdict"], ended.event("summary")["exit_status"]) == ("no difference", 4)
    file = only_run(tmp_path) / "certificate.json"
    verified = cli("verify", file)
    assert (verified.status, verified.stdout.splitlines()[0]) == (
        0,
        "no difference: no candidate is better than the seed, which scores 0.5 on 12 sealed test rows",
    )
    assert cli("verify", file, "--require", "improved").status == 4
    assert cli("replay", "last").status == 0, "the whole record was replayed"


def test_a_gain_on_training_rows_does_not_meet_what_is_required(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    words.datasets["test"] = words.datasets["train"]
    ended = cli("optimize", serve(words), *RUN, "--require", "improved")
    file = only_run(tmp_path) / "certificate.json"
    assert json.loads(file.read_text())["verdict"] == "improved"
    verified = cli("verify", file, "--require", "improved")
    assert (ended.status, verified.status, cli("verify", file).status) == (4, 4, 0)
    for text in (ended.stdout, verified.stderr):
        assert "leaks weaken it, so it is not what is required: give test rows that are neither" in " ".join(
            text.split()
        )


def test_what_is_required_needs_test_rows_before_anything_is_paid_for(serve: Serve, cli: Cli, words: Script) -> None:
    del words.datasets["test"]
    ended = cli("optimize", serve(words), "--max-metric-calls", 300, "--require", "improved")
    assert ended.status == 2
    assert "only test rows can show that: give `testset`" in ended.stdout
    assert words.calls("evaluate") == []


def test_test_rows_are_scored_as_often_as_the_noise_of_the_search_asks(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    script = Script(datasets={"train": rows(3), "val": rows(12, 100), "test": rows(12, 200)})
    calls = itertools.count()

    def noisy(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        result = scored(row, candidate)
        return result | {"score": result["score"] * 0.5 + (next(calls) * 7919 % 10) / 20}

    script.evaluate = noisy
    ended = cli("optimize", serve(script), "--max-metric-calls", 120, "--check", "off", "--json", "--past-perfect")
    assert ended.status == 0, ended.stderr
    certificate = json.loads((only_run(tmp_path) / "certificate.json").read_text())
    repeats = certificate["test"]["repeats"]
    assert repeats > 1
    assert "repeated evaluations have standard deviations of" in certificate["test"]["repeats_reason"]
    tests = [params for params in script.calls("evaluate") if params["batch"][0]["split"] == "test"]
    assert set(Counter(params["batch"][0]["id"] for params in tests).values()) == {2 * repeats}
    assert [event["repeats"] for event in ended.events if event["event"] == "tested"] == [repeats] * 2
