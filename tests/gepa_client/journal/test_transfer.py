"""A run moves from any store to any other as one JSON document, byte by byte the same."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gepa_client.errors import JournalError, NoSuchRun, RunExists
from gepa_client.journal import Claim, Store, export_run, import_run, open_store
from gepa_client.journal.entries import SEARCH, Row
from tests.gepa_client.journal.rows_of_runs import KEPT, OWNER, RUN, driven, ended, entry, sent

ANSWERS = [
    b'{"z":1,"a":[1.0,2.5e-7,null,true],"\xc3\xa9":"\xc3\xa9"}',
    b"null",
    b'{"spaced": 1.50}',
    b'{"twice":1,"twice":2}',
    b'{"big":1180591620717411303424}',
    b'"\\ud800"',
    b"[" * 500 + b"]" * 500,
    b'"' + b"x" * 10_000 + b'"',
]
ROWS: list[Row] = [
    sent(0),
    sent(0, 2, instance=None),
    ended(0, 2, seconds=0.5, usage={"z": 1, "cost_usd": 0.25, "more": {"a": [1]}}, examples=2, unpriced=1),
    *(entry(number, answer) for number, answer in enumerate(ANSWERS)),
    entry(0, b"1", part="start"),
    KEPT,
    replace(KEPT, index=1, parents=[0], objective_scores=None),
]


@pytest.fixture
def target(tmp_path: Path) -> Any:
    """Another store, empty."""
    store = open_store(str(tmp_path / "target.db"))
    yield store
    store.close()


def exported(store: Store) -> dict[str, Any]:
    driven(store)
    store.update(RUN.id, {"status": "running", "wish": "cancel", "identity": {"seed": 0}, "best": {"score": 1.0}})
    store.write(RUN.id, OWNER, ROWS)
    return export_run(store, RUN.id)


@pytest.mark.parametrize(
    "through", [lambda document: orjson.loads(orjson.dumps(document)), lambda d: json.loads(json.dumps(d))]
)
def test_a_run_is_the_same_in_another_store(store: Store, target: Store, through: Callable[[Any], Any]) -> None:
    document = exported(store)
    imported = import_run(target, through(document))
    original = store.run(RUN.id)
    assert imported == replace(
        original, status="paused", reason=imported.reason, wish=None, driver=None, claim=Claim(None, 0)
    )
    assert [found.answer for found in target.entries(RUN.id, SEARCH)] == ANSWERS
    assert sorted(map(repr, target.rows(RUN.id))) == sorted(map(repr, store.rows(RUN.id)))
    assert target.spending(RUN.id) == store.spending(RUN.id)
    assert {**export_run(target, RUN.id), "run": None} == {**document, "run": None}


def test_a_run_comes_into_any_store(store: Store, target: Store) -> None:
    document = exported(target)
    import_run(store, document)
    assert sorted(map(repr, store.rows(RUN.id))) == sorted(map(repr, ROWS))


def test_answers_are_readable_where_that_keeps_their_bytes(store: Store) -> None:
    entries = exported(store)["entries"]
    assert entries[0]["answer"] == {"z": 1, "a": [1.0, 2.5e-7, None, True], "é": "é"}
    assert entries[2]["answer_text"] == '{"spaced": 1.50}'


def test_a_run_that_is_there_is_not_replaced(store: Store) -> None:
    document = exported(store)
    with pytest.raises(RunExists, match=RUN.id):
        import_run(store, document)
    assert store.run(RUN.id).status == "running"


def test_an_imported_run_can_be_driven(store: Store, target: Store) -> None:
    import_run(target, exported(store))
    assert target.claim(RUN.id, target.run(RUN.id).claim, "new", "pid 3")
    target.write(RUN.id, "new", [entry(len(ANSWERS)), sent(0, 3)])


def broken(document: dict[str, Any], *path: str | int, value: object) -> dict[str, Any]:
    changed: Any = copy.deepcopy(document)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    result: dict[str, Any] = changed
    return result


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("format",), "gepa", 'its "format" should be "evolverpc-run"'),
        (("version",), 2, "version 2, this evolverpc reads 1"),
        (("version",), "1", "version"),
        (("run", "status"), "sleeping", r"run\.status"),
        (("entries", 1, "number"), "1", r"entries\.1\.number"),
        (("entries", 1, "answer_text"), "1", r"entries\.1: .*answer_text"),
        (("entries", 2, "answer_text"), "{", r"entries\.2"),
        (("entries", 2, "answer_text"), "[" * 9999, r"entries\.2"),
        (("entries", 0, "answer"), "\ud800", r"entries\.0"),
        (("entries", 1, "number"), 0, "two different rows of one number"),
        (("attempts", 0, "colour"), "red", r"attempts\.0\.colour"),
        (("candidates", 0, "texts"), None, r"candidates\.0\.texts"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_and_nothing_of_it_stays(
    store: Store, target: Store, path: tuple[str | int, ...], value: object, said: str
) -> None:
    document = broken(exported(target), *path, value=value)
    with pytest.raises(JournalError, match=said):
        import_run(store, document)
    assert store.runs() == []
    with pytest.raises(NoSuchRun):
        store.entries(RUN.id, SEARCH)


@pytest.mark.parametrize("document", [None, [], {}, "text"])
def test_what_is_no_exported_run_is_refused(store: Store, document: object) -> None:
    with pytest.raises(JournalError, match="no exported run"):
        import_run(store, document)
