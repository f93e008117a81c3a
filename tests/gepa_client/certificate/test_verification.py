"""A certificate is refused if any value of it, or of the record that it rests on, is another one."""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gepa_client.certificate.certificate import COVERED, certify, leaves, mismatches
from gepa_client.errors import ClientError, NoCertificate
from gepa_client.journal.entries import Entry
from gepa_client.journal.store import Store, open_store
from gepa_client.run.export_import import export_run, import_run
from gepa_client.settings.run_config import SETTINGS
from tests.gepa_client.certificate.certified_run import BEST, Certified

Place = tuple[str, ...]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(str(tmp_path / "runs.db"))) as opened:
        yield opened


RUN = Certified(
    config={"failure_score": -1.0, "reflection_lm": "openai/gpt-5"}, tied=(0, 2), searched=25, minibatch=(1, 24)
)

NOT_COVERED = (
    # for display only: when and where the run was driven, its name, and counts that the journal holds too
    *("run.name", "run.program", "run.reason", "run.output", "run.counters", "run.best"),
    *("run.created", "run.updated", "run.started", "run.completed"),
    *(f"run.config.{name}" for name in SETTINGS if name not in COVERED),
)
"""Beginnings of the places in a record that no number of a certificate rests on."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The certificate, and the exported run with its answers as JSON, so that each value in them can be changed."""
    with closing(open_store(str(tmp_path_factory.mktemp("run") / "runs.db"))) as store:
        run = RUN.into(store)
        certificate = certify(store, run).model_dump(mode="json")
        document = json.loads("".join(export_run(store, run.id)))
    for row in document["rows"]:
        if "answer" in row:
            row["answer"] = orjson.loads(row["answer"])
    return certificate, document


@contextmanager
def imported(document: dict[str, Any], folder: Path) -> Iterator[Store]:
    rows = [
        {**row, "answer": orjson.dumps(row["answer"]).decode()} if "answer" in row else row for row in document["rows"]
    ]
    with closing(open_store(str(folder / "again.db"))) as store:
        import_run(store, {**document, "rows": rows})
        yield store


def found_wrong(certificate: dict[str, Any], document: dict[str, Any], folder: Path) -> list[str]:
    """What verification finds; an import that refuses the record counts too."""
    try:
        with imported(document, folder) as store:
            return mismatches(store, store.run(document["run"]["id"]), certificate)
    except ClientError as error:
        return [str(error)]


def changed(value: Any) -> Any:
    """Another value of the same type, as close as it gets."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 1e-9
        case str():
            return f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"
        case None:
            return 0
        case _:
            return [*value, 0] if isinstance(value, list) else {**value, "more": 0}


def at(value: Any, place: Place) -> Any:
    for name in place:
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def replaced(whole: Any, place: Place, new: Any) -> Any:
    whole = copy.deepcopy(whole)
    parent = at(whole, place[:-1])
    parent[int(place[-1]) if isinstance(parent, list) else place[-1]] = new
    return whole


def removed(whole: Any, place: Place) -> Any:
    whole = copy.deepcopy(whole)
    parent = at(whole, place[:-1])
    del parent[int(place[-1]) if isinstance(parent, list) else place[-1]]
    return whole


def test_every_value_of_a_certificate_is_checked(record: Any, tmp_path: Path) -> None:
    certificate, document = record
    places = [place for place, _ in leaves(certificate)]
    assert len(places) > 40
    with imported(document, tmp_path) as store:
        run = store.run(certificate["run"])
        for place in places:
            other = replaced(certificate, place, changed(at(certificate, place)))
            named = ".".join(place)
            assert [line.split(":")[0] for line in mismatches(store, run, other)][:1] == [named]
            assert [line.split(":")[0] for line in mismatches(store, run, removed(certificate, place))][:1] == [named]
        assert mismatches(store, run, certificate | {"more": 1}) == ["more: 1, but the record gives nothing"]


def one_of_each_form(document: dict[str, Any], places: Sequence[Place]) -> list[Place]:
    """Of places that differ in their indices alone, the last in each part of the journal."""

    def form(place: Place) -> tuple[str, ...]:
        row = at(document, place[:2]) if place[0] == "rows" else {}
        part = (*row, row["part"]) if "answer" in row else (*row,)
        return (*part, *("*" if name.isdigit() else name for name in place))

    return list({form(place): place for place in places}.values())


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_every_value_of_the_record_is_checked_also_if_its_checksums_are_right(
    record: Any, tmp_path: Path, every: bool
) -> None:
    certificate, document = record
    places = [place for place, _ in leaves(document) if place[0] not in ("format", "version")]
    places = [place for place in places if not ".".join(place).startswith(NOT_COVERED)]
    assert len(places) > 1000
    for number, place in enumerate(places if every else one_of_each_form(document, places)):
        folder = tmp_path / str(number)
        folder.mkdir()
        other = replaced(document, place, changed(at(document, place)))
        assert found_wrong(certificate, other, folder) != [], f"{'.'.join(place)} was changed"


def test_every_row_of_the_record_is_needed(record: Any, tmp_path: Path) -> None:
    certificate, document = record
    places = [("rows", str(at)) for at in range(len(document["rows"]))]
    for number, place in enumerate(one_of_each_form(document, places)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert found_wrong(certificate, removed(document, place), folder) != [], f"{'.'.join(place)} was removed"


def test_every_setting_that_a_result_depends_on_is_checked(record: Any, tmp_path: Path) -> None:
    certificate, document = record
    with imported(document, tmp_path) as store:
        run = store.run(certificate["run"])
        for name in COVERED:
            other = replace(run, config=run.config | {name: [0, 7] if name == "score_range" else 7})
            found = mismatches(store, other, certificate)
            assert any(each.startswith("digests.settings: ") for each in found), name


def test_a_commitment_that_was_made_after_the_search_is_refused(store: Store) -> None:
    rows = RUN.rows()
    store.create(RUN.run(), [*rows[1:], rows[0]])
    run = store.run(RUN.run_id)
    certificate = certify(store, run).model_dump(mode="json")
    assert mismatches(store, run, certificate) == ["the journal committed to the test rows after the search had begun"]


def test_results_of_other_rows_are_refused_in_each_repeat(store: Store) -> None:
    made = Certified(scores=([[0.0, 0.0]] * 12, [[1.0, 1.0]] * 12))
    of_repeat = [row for row in made.rows() if isinstance(row, Entry) and row.part == f"test-{BEST}-repeat-1"]
    other = replace(of_repeat[3], digest=of_repeat[4].digest)
    store.create(made.run(), [other if row == of_repeat[3] else row for row in made.rows()])
    with pytest.raises(NoCertificate, match="its results are not those of candidate 4"):
        certify(store, store.run(made.run_id))


def test_a_choice_between_tied_candidates_that_does_not_follow_from_their_scores_is_refused(store: Store) -> None:
    rows = RUN.rows()
    [decision] = [row for row in rows if isinstance(row, Entry) and row.about == "ties 1"]
    answer = json.loads(decision.answer)
    answer["candidates"][0]["fresh"] -= 0.5
    other = replace(decision, answer=json.dumps(answer).encode())
    store.create(RUN.run(), [other if row == decision else row for row in rows])
    with pytest.raises(NoCertificate, match="does not follow from their scores"):
        certify(store, store.run(RUN.run_id))
