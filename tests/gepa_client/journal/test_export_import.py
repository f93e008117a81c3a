"""A run moves from any store to any other as one JSON document, byte by byte the same."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.entries import SEARCH, Claim, Row
from gepa_client.journal.history import all_rows
from gepa_client.journal.store import Store, open_store
from gepa_client.run.export_import import MACHINE_SETTINGS, export_run, import_run
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.journal.sample_runs import KEPT, OWNER, RUN, driven, ended, entry, sent
from tests.gepa_client.stored_run import DISCOVERY, IDENTITY, decisions

OUTPUTS = [
    b'{"z":1,"a":[1.0,2.5e-7,null,true],"\xc3\xa9":"\xc3\xa9"}',
    b"null",
    b'{"spaced": 1.50}',
    b'{"twice":1,"twice":2}',
    b'{"big":1180591620717411303424}',
    b"[" * 200 + b"]" * 200,
    b'"' + b"x" * 10_000 + b'"',
]
ANSWERS = [b'{"status":"ok","score":1.0,"output":' + output + b',"seconds":0.1}' for output in OUTPUTS]
CONFIG = RunConfig(url=("http://127.0.0.1:1",), max_metric_calls=9, seed=7, name="words", lease_s=3.0).recorded()
FIRST = 4
"""The place of the first entry of the search among the rows of an export, after the decisions."""

BEST = {"index": 0, "score": 1.0, "texts": {"b.c": "text"}}
ROWS: list[Row] = [
    sent(0),
    sent(0, 2, instance=None),
    ended(0, 2, seconds=0.5, usage={"z": 1, "cost_usd": 0.25, "more": {"a": [1]}}, examples=2, unpriced=1),
    *(entry(number, answer) for number, answer in enumerate(ANSWERS)),
    entry(1, b'[{"id":"0","data":1}]', part="start"),
    *decisions([KEPT, replace(KEPT, index=1, parents=[0], objective_scores=None)]),
]
SECOND = orjson.loads(ROWS[-1].answer)  # type: ignore[union-attr]


@pytest.fixture
def target(tmp_path: Path) -> Any:
    """Another store, empty."""
    store = open_store(str(tmp_path / "target.db"))
    yield store
    store.close()


def export_of(store: Store) -> dict[str, Any]:
    driven(store)
    changes = {"status": "running", "config": CONFIG, "identity": IDENTITY, "best": BEST}
    store.update(RUN.id, changes | {"counters": {**RUN.counters, "now": {"phase": "seed"}}})
    store.write(RUN.id, OWNER, ROWS)
    return json.loads("".join(export_run(store, RUN.id)))


def test_a_run_is_the_same_in_another_store(store: Store, target: Store) -> None:
    document = export_of(store)
    imported = import_run(target, document)
    original = store.run(RUN.id)
    assert imported == replace(
        original,
        status="paused",
        reason=imported.reason,
        config={key: value for key, value in CONFIG.items() if key not in MACHINE_SETTINGS},
        counters=RUN.counters,
        output=None,
        driver=None,
        claim=Claim(None, 0),
    )
    assert [found.answer for found in target.entries(RUN.id, SEARCH)] == ANSWERS
    assert sorted(map(repr, all_rows(target, RUN.id))) == sorted(map(repr, all_rows(store, RUN.id)))
    assert target.spending(RUN.id) == store.spending(RUN.id)
    assert {**json.loads("".join(export_run(target, RUN.id))), "run": None} == {**document, "run": None}


def broken(document: dict[str, Any], *path: str | int, value: object) -> dict[str, Any]:
    changed: Any = copy.deepcopy(document)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    result: dict[str, Any] = changed
    return result


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "gepa", 'its "format" should be "evolverpc-run"'),
        (("version",), 4, "version 4, this evolverpc reads 8"),
        (("run", "status"), "sleeping", r"run\.status"),
        (("run", "id"), "../../elsewhere", r"run\.id"),
        (("run", "id"), "x\ud800", r"run\.id"),
        (("run", "config", "seed"), [1], r"run\.config: .*seed"),
        (("run", "best", "score"), float("inf"), r"run\.best\.score"),
        (("run", "identity", "hash_seed"), "-1", r"run\.identity\.hash_seed"),
        (("rows", FIRST + 1, "number"), 2**63, r"rows\.5\.entry\.number"),
        (("rows", FIRST + 1, "kind"), "weather", r"rows\.5: kind: `weather` is none of evaluate"),
        (("rows", FIRST, "answer"), '{"status":"ok","score":1%s,"seconds":0}' % ("0" * 400), r"rows\.4"),
        (("rows", 1, "usage", "cost_usd"), "x", r"rows\.1: usage\.cost_usd"),
        (("rows", FIRST - 1, "answer"), json.dumps({**SECOND, "index": 7}), "numbered from 0 to 1"),
        (("rows", FIRST - 1, "answer"), json.dumps({**SECOND, "parents": [1]}), "candidate 1 cannot come from"),
        (("rows", FIRST - 1, "answer"), json.dumps({**SECOND, "scores": {"0": "x"}}), r"`candidate`: scores\.0"),
        (("rows", FIRST, "answer"), "{", r"rows\.4: `answer` cannot be read"),
        (("rows", FIRST, "answer"), "\ud800", r"rows\.4"),
        (("rows", FIRST + 1, "number"), 0, "two different rows of one number"),
    ],
)
def test_an_invalid_document_is_an_error_and_nothing_of_it_is_stored(
    store: Store, target: Store, path: tuple[str | int, ...], value: object, message: str
) -> None:
    document = broken(export_of(target), *path, value=value)
    with pytest.raises(JournalError, match=message):
        import_run(store, document)
    with pytest.raises(NoSuchRun):
        store.entries(RUN.id, SEARCH)


@pytest.mark.parametrize(
    ("part", "number", "kind", "good", "bad"),
    [
        ("start", 0, "begin", DISCOVERY, {"program": {}}),
        ("start", 1, "begin", [{"id": "0", "data": None, "untyped": True}], None),
        ("start", 3, "begin", [{"id": "0", "split": "test"}], [{"id": "0"}]),
        (
            "search",
            90,
            "completion",
            {"text": "te", "finish_reason": "length"},
            {"text": "te", "finish_reason": "stop"},
        ),
        ("search", 90, "proposal", {"rules": "red"}, {"rules": 5}),
        ("search", 90, "reflective_dataset", {"dataset": {"rules": [{"a": 1}]}}, {"dataset": 5}),
        ("search", 90, "adapter_state", {"dataset": {}, "adapter_state": [1]}, None),
        ("search", 90, "stop", {"status": "completed", "reason": "x"}, {"status": "completed"}),
        ("search", 90, "failure", {"type": "E", "message": "m", "rpc": {"code": 1, "message": "m"}}, {"type": "E"}),
        ("search-rollouts", 90, "rollout", {"status": "rollout", "score": None, "seconds": 1.0}, {"status": "rollout"}),
        ("test-0", 0, "evaluate", {"status": "ok", "score": 1, "seconds": 0}, {"status": "ok", "seconds": 1}),
        ("finalize-7", 0, "finalize", None, 5),
        ("gateway", 0, "refusal", {"sandbox": "1", "what": "w", "reason": "r"}, {"what": "w"}),
        ("search", 90, "steer", {"id": "a", "action": {"kind": "unpin"}, "author": "a", "created": "t"}, {"id": "a"}),
        ("search", 90, "reuse", [[1, 2], [3]], [1]),
        ("search", 90, "race", {"slots": 2, "proposals": [{"proposal": 0, "drops": True}], "rows": [3]}, {"rows": [3]}),
        ("ties-3", 0, "ties", {"candidates": [1, 2], "rows": [4], "searched": 9}, {"candidates": [1, 2]}),
    ],
)
def test_an_answer_is_what_its_kind_is_answered_with(
    store: Store, target: Store, part: str, number: int, kind: str, good: object, bad: object
) -> None:
    document = export_of(target)
    entry = {"part": part, "number": number, "kind": kind, "digest": "", "about": "", "answer": json.dumps(bad)}
    with pytest.raises(JournalError, match=f"rows.0: no answer to `{kind}`"):
        import_run(store, {**document, "rows": [entry]})
    import_run(store, {**document, "rows": [{**entry, "answer": json.dumps(good)}]})
    assert [orjson.loads(found.answer) for found in store.entries(RUN.id, part)] == [good]


def test_an_import_calls_no_address_and_opens_no_file_of_its_configuration(store: Store, target: Store) -> None:
    config = RunConfig(
        url=("http://evil.example",),
        fleet=Path("/etc/fleet"),
        token_file=Path("/etc/token"),
        score_with=("http://evil.example/score token-file=/etc/token",),
        allow_insecure=True,
        max_seconds=9.0,
        reflection_lm="openai/gpt-5",
        reflection_lm_kwargs={
            "temperature": 0.5,
            "api_base": "http://evil.example",
            "azure_endpoint": "evil.example:443",
            "proxy": "evil.example:3128",
            "langfuse_host": "evil.example",
            "headers": {"Host": "evil.example"},
            "x": [{"y": "http://evil.example"}],
        },
        tracking=("wandb", "mlflow"),
        output=Path("/etc/out"),
        store="/etc/store.db",
        seed=7,
    ).recorded()
    document = broken(export_of(target), "run", "config", value=config)
    document["run"]["output"] = "/etc/out"
    imported = import_run(store, document)
    assert imported.output is None
    assert imported.config["seed"] == 7
    assert imported.config["max_seconds"] == 9.0
    assert imported.config["reflection_lm_kwargs"]["temperature"] == 0.5
    for bad in ("evil", "/etc", "wandb", "mlflow", "allow_insecure"):
        assert bad not in json.dumps(imported.config)


@pytest.mark.parametrize("document", [None, [], {}, "text"])
def test_what_is_no_exported_run_is_refused(store: Store, document: object) -> None:
    with pytest.raises(JournalError, match="no exported run"):
        import_run(store, document)
