"""Values that readers of JSON change come back as they were, from files and objects, through plain JSON."""

import json
import math
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolverpc_common import exact_values
from evolverpc_common.exact_values import InexactValueError, loads, packed, place_of_marker, readable
from evolverpc_common.row_files import line_of_row, read_rows
from rpc_server.worker import json_values as of_worker
from tests.support.rounds import ALL

DRAWN = settings(max_examples=100 if ALL else 25)
KEYS = st.one_of(st.text(), st.integers(), st.none(), st.booleans(), st.just("$exact"))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
HALVES = st.text(st.characters(categories=["Cs", "L"]))
VALUES = st.recursive(
    st.one_of(SCALARS, HALVES),
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(KEYS, inner), st.dictionaries(HALVES, inner)
    ),
)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner, min_size=2)),
).filter(lambda value: "inf" not in repr(value))


@pytest.mark.repeated
@DRAWN
@given(VALUES)
def test_a_value_comes_back_with_its_types_after_any_reader_of_json(value: Any) -> None:
    carried = orjson.loads(orjson.dumps(packed(value)))
    assert repr(of_worker.unpacked(carried)) == repr(value)
    assert exact_values.with_integers_packed(carried) == carried
    orjson.dumps(readable(carried))


@pytest.mark.repeated
@DRAWN
@given(PLAIN)
def test_what_every_reader_keeps_is_carried_as_it_is(value: Any) -> None:
    assert packed(value) == value
    assert place_of_marker(packed(value)) is None


@given(st.integers() | HALVES | st.dictionaries(st.just("$exact"), st.integers() | HALVES))
def test_outputs_have_the_same_markers_as_rows(value: Any) -> None:
    assert of_worker.packed([value], "output") == packed([value])


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"a": [{1, 2}]}, "a[0] is of type set, which JSON lacks: give it as text"),
        ({"a": {"b": b"x"}}, "a.b is of type bytes"),
        ({"a": math.nan}, "a is nan, which JSON cannot hold"),
        ({"a": {(1, 2): 3}}, "a has a key of type tuple: give texts or numbers as keys"),
        ({"a": {math.inf: 3}}, "a key of a is inf"),
    ],
)
def test_what_no_marker_stands_for_is_refused_by_its_path(value: Any, fault: str) -> None:
    with pytest.raises(InexactValueError, match=r"^a") as refused:
        packed(value)
    assert str(refused.value).startswith(fault)


@pytest.mark.parametrize(
    "text", ["1" * 16, "-" + "9" * 25, '["x", 12345678901234567890, 1.5]', '{"1234567890123456": 1}']
)
def test_integers_are_read_with_all_digits(text: str) -> None:
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize("text", ["NaN", "1e400", "[12345678901234567890, Infinity]", "1" * 5_000, "[1,", "0" * 20])
def test_what_is_no_json_or_more_than_a_number_holds_is_refused(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(text)


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("r.jsonl", '{"a": 1500000000000000000001, "b": [-9007199254740993]}\n\n{"h": "\\ud83d"}', None),
        ("r.json", '[{"a": {"$exact": ["integer", "1"]}}, {"f": 0.12345678901234567890, "e": 1e22}]', None),
        ("r.csv", "text,label\na,x\n  \n\n\t\nb,\n,\n", [["a", "x"], ["b", ""], ["", ""]]),
        ("ONE.CSV", 'text\na\n \n""\n7\n', [["a"], [""], ["7"]]),
    ],
)
def test_rows_of_files_are_exact_and_blank_lines_of_csv_are_none(
    tmp_path: Path, name: str, content: str, rows: list[list[str]] | None
) -> None:
    (tmp_path / name).write_text(content)
    found = [of_worker.unpacked(row) for row in read_rows(tmp_path / name)]
    assert line_of_row(tmp_path / name, 1) == (3 if name == "r.jsonl" else None)
    if rows is not None:
        assert [list(row.values()) for row in found] == rows
    else:
        lines = json.loads(content) if name.endswith("json") else map(json.loads, filter(None, content.split("\n")))
        assert found == list(lines)


@pytest.mark.parametrize(
    "content", [1, ["integer", 5], ["integer", "x"], ["set", []], ["text", '"'], ["object", [[[], 1]]]]
)
def test_a_malformed_marker_is_refused(content: Any) -> None:
    with pytest.raises(of_worker.MalformedMarkerError, match="is no marker of the contract"):
        of_worker.unpacked([{"$exact": content}])
