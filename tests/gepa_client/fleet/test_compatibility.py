from typing import Any

import pytest

from gepa_client.fleet.handshake import differences
from protocol import DiscoverResult
from tests.gepa_client.stored_run import DISCOVERY


def described(**changed: Any) -> DiscoverResult:
    names = changed.get("components", ["a", "b"])
    program = {
        "name": changed.get("name", "p"),
        "version": changed.get("version"),
        "digest": changed.get("digest"),
        "components": [{"name": name} for name in names],
        "seed_candidate": dict.fromkeys(names, "text"),
    }
    limits = {"max_concurrency": changed.get("slots", 1), "whole_batches": changed.get("whole_batches", False)}
    return DiscoverResult.model_validate(
        DISCOVERY
        | {"program": program, "datasets": changed.get("datasets", {}), "limits": DISCOVERY["limits"] | limits}
        | {"capabilities": ["reflective_datasets"] if changed.get("records") else []}
    )


@pytest.mark.parametrize(
    ("leader", "other", "difference"),
    [
        ({}, {"slots": 9}, None),
        ({}, {"components": ["b", "a"]}, None),
        ({"version": "1"}, {}, None),
        ({}, {"digest": "x"}, None),
        ({"datasets": {"unused": {"size": 1, "digest": "x"}}}, {}, None),
        ({}, {"datasets": {"val": {"size": 1, "digest": "x"}}}, None),
        ({}, {"components": ["a"]}, "components: a instead of a, b"),
        ({"version": "1"}, {"version": "2"}, "program version: 2 instead of 1"),
        ({}, {"name": "q"}, "program: q instead of p (`allow_mixed_programs` accepts other names)"),
        ({}, {"whole_batches": True}, "batches: it wants whole batches, the first server takes single examples"),
        ({}, {"records": True}, "records: it makes its own records, the first server makes no records of its own"),
        ({"datasets": {"val": {"size": 1, "digest": "x"}}}, {}, "split val: it has none"),
        (
            {"datasets": {"val": {"size": 1, "digest": "x"}}},
            {"datasets": {"val": {"size": 1, "digest": "y"}}},
            "split val: other rows (digest y instead of x)",
        ),
    ],
)
def test_what_could_change_a_score_is_a_difference_and_nothing_else(leader, other, difference):
    assert differences(described(**leader), described(**other), ["val"]) == ([difference] if difference else [])
