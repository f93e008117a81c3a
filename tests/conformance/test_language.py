"""The small language of the cases: matchers, values, generators."""

import random
from typing import Any

import pytest

from gepa_client.conformance.case_language import ABSENT, UnknownName, as_bytes, lookup, mismatches, render

FITTING: list[tuple[Any, Any]] = [
    (1, 1.0),
    ({"a": 1, "more": 2}, {"a": 1}),
    ([1, "x"], [1, "x"]),
    ({"a": {}}, {"a": {"$exactly": {}}, "b": {"$absent": True}}),
    ([3, 1, 2], {"$unordered": [1, 2, 3]}),
    ([{"a": 1, "b": 1}, {"a": 1}], {"$unordered": [{"a": 1}, {"b": 1}]}),
    ([1, 2], {"$every": {"$at_least": 1, "$at_most": 2}, "$length": 2}),
    ([1, 2], {"$some": 2}),
    ("text", {"$starts": "te", "$contains": "ex", "$length": {"$at_least": 4}, "$type": "string"}),
    ([1, "a"], {"$contains": "a"}),
    ({"b": 1, "a": 2}, {"$key_order": ["b", "a"], "$keys": ["a", "b"]}),
    (0.1 + 0.2, {"$approx": 0.3}),
    (None, {"$one_of": [{"$absent": True}, None]}),
    ({"deep": ["a"]}, {"$lacks": "secret"}),
    ([1, 2, "1"], {"$distinct": True}),
    (5, {"$not": {"$type": "string"}}),
]
MISFITTING: list[tuple[Any, Any]] = [
    (True, 1),
    (1, True),
    ("1", 1),
    (None, {}),
    ({}, {"a": None}),
    ([1], [1, 2]),
    ({"a": 1}, {"$exactly": {}}),
    ({"a": 1}, {"a": {"$absent": True}}),
    ([1, 1], {"$unordered": [1, 2]}),
    ([1, 5], {"$every": {"$at_most": 2}}),
    ([], {"$some": 2}),
    (True, {"$type": "integer"}),
    (1.5, {"$type": "integer"}),
    (True, {"$at_least": 0}),
    ({"a": 2, "b": 1}, {"$key_order": ["b", "a"]}),
    ({"deep": ["my secret"]}, {"$lacks": "secret"}),
    ([1, 1.0], {"$distinct": True}),
    (5, {"$not": 5}),
    (5, {"$length": 1}),
]


@pytest.mark.parametrize(("actual", "matcher"), FITTING)
def test_a_value_fits(actual: Any, matcher: Any) -> None:
    assert mismatches(actual, matcher) == []


@pytest.mark.parametrize(("actual", "matcher"), MISFITTING)
def test_a_value_does_not_fit(actual: Any, matcher: Any) -> None:
    assert mismatches(actual, matcher) != []


def test_a_mismatch_is_reported_with_its_path() -> None:
    assert mismatches({"a": [{"b": 1}]}, {"a": [{"b": 2}]}) == ["a[0].b: expected 2, found 1"]


def test_unordered_finds_the_one_way_to_place_all_items() -> None:
    numbers = list(range(8))
    shuffled = random.Random(1).sample(numbers, 8)  # not for secrets
    assert mismatches(shuffled, {"$unordered": [{"$at_most": number} for number in numbers]}) == []


@pytest.mark.parametrize("matcher", [{"$oops": 1}, {"$type": "string", "a": 1}])
def test_an_invalid_matcher_is_an_error_of_the_case(matcher: Any) -> None:
    with pytest.raises(ValueError, match="operator"):
        mismatches(1, matcher)


SCOPE = {"discover": {"limits": {"n": 3}, "names": [{"name": "a"}, {"name": "b"}]}, "fresh": {"x": "X"}, "turn": 7}
RENDERED: list[tuple[Any, Any]] = [
    ("${discover.limits.n}", 3),
    ("is ${discover.limits.n}.", "is 3."),
    ("${discover.names[1].name}", "b"),
    ("${discover.names[*].name}", ["a", "b"]),
    ("${fresh:x}/${turn}", "X/7"),
    ("${}{{x}}", "${}{{x}}"),
    ({"k${turn}": ["${turn}"]}, {"k7": [7]}),
    ({"$repeat": {"id": "e${index}"}, "$times": 2}, [{"id": "e0"}, {"id": "e1"}]),
    ({"$repeat": "${index}", "$times": "${discover.limits.n}", "$plus": 1}, [0, 1, 2, 3]),
    ({"$text": "ab", "$times": 2}, "abab"),
    ({"$nest": 3}, [[[]]]),
    ({"$product": ["${discover.limits.n}", 0.5]}, 1.5),
    ({"$product": [0.5, 600]}, 300),
    ({"$join": ["${discover.limits}", {"n": "${turn}", "m": "x"}]}, {"n": 7, "m": "x"}),
]


@pytest.mark.parametrize(("node", "value"), RENDERED)
def test_values_are_filled_in(node: Any, value: Any) -> None:
    assert render(node, SCOPE) == value


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UnknownName):
        render("${discover.limits.m}", SCOPE)


def test_an_unknown_path_finds_nothing() -> None:
    assert [lookup({"a": [1]}, path) for path in ("a[1]", "a.b", "b", "a[0].c")] == [ABSENT] * 4


def test_a_raw_body_is_built_from_texts_and_bytes() -> None:
    body = ['{"a": "', {"$bytes": "ff"}, {"$text": "é", "$times": 2}, '"}']
    assert as_bytes(render(body, SCOPE)) == b'{"a": "\xff\xc3\xa9\xc3\xa9"}'
