"""The error tree: drawn as it is, one code each, the same after a trip over the wire, deaf to names a peer sends."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import errors
from protocol.errors import ALL, BY_CODE, RpcError

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
details = st.dictionaries(st.text().filter(lambda key: key != "retryable"), json_values, max_size=4)


def test_the_drawing_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+) +(-\d+) +\S", errors.__doc__ or "")
    assert [(name, int(code)) for name, code in drawn] == [(kind.__name__, kind.code) for kind in ALL]


def test_every_error_of_the_module_is_in_the_list_and_stands_directly_below_the_root() -> None:
    below = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RpcError)} - {
        RpcError
    }
    assert below == set(ALL)
    assert all(kind.__bases__ == (RpcError,) for kind in ALL)


def test_codes_are_unique_and_in_their_blocks() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes) == len(BY_CODE)
    assert set(codes[:5]) == {-32700, -32600, -32601, -32602, -32603}
    assert codes[5:] == list(range(-32020, -32020 - len(codes[5:]), -1))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_documents_its_meaning(kind: type[RpcError]) -> None:
    assert kind.__doc__
    assert kind.default_message != RpcError.default_message
    assert kind().to_wire() == {
        "code": kind.code,
        "message": kind.default_message,
        "data": {"retryable": kind.default_retryable},
    }


@given(kind=st.sampled_from(ALL), message=st.none() | st.text(), retryable=st.none() | st.booleans(), more=details)
def test_an_error_is_the_same_after_a_trip_over_the_wire(
    kind: type[RpcError], message: str | None, retryable: bool | None, more: dict[str, Any]
) -> None:
    sent = kind(message, retryable=retryable)
    sent.details.update(more)
    received = RpcError.from_wire(json.loads(json.dumps(sent.to_wire())))
    assert type(received) is kind
    assert (received.message, received.retryable, received.details) == (sent.message, sent.retryable, sent.details)
    assert received.to_wire() == sent.to_wire()


@given(code=st.integers().filter(lambda code: code not in BY_CODE), message=st.text(), more=details)
def test_an_unknown_code_gives_a_plain_error_that_keeps_it(code: int, message: str, more: dict[str, Any]) -> None:
    received = RpcError.from_wire({"code": code, "message": message, "data": more})
    assert type(received) is RpcError
    assert received.to_wire() == {"code": code, "message": message, "data": {"retryable": False, **more}}


@given(st.dictionaries(st.sampled_from(["code", "message", "data", "retryable", "type"]) | st.text(), json_values))
def test_any_error_object_of_a_peer_becomes_an_rpc_error(error: dict[str, Any]) -> None:
    received = RpcError.from_wire(error)
    code = error.get("code")
    assert type(received) is (BY_CODE.get(code, RpcError) if type(code) is int else RpcError)
    assert isinstance(received.message, str)
    assert type(received.to_wire()["code"]) is int
    assert isinstance(received.retryable, bool)
    str(received)


@pytest.mark.parametrize(
    "error",
    [
        {"code": True, "message": "true is no code"},
        {"code": -32700.0, "message": "nor is a float"},
        {"code": "ParseError", "message": "nor is a name"},
        {"code": ["os", "system"], "message": {"not": "text"}},
        {"code": {}, "message": None, "data": ["not", "an", "object"]},
        {"code": -32030, "message": "x", "data": {"retryable": "yes"}},
        {"code": -32602, "message": "x", "data": {"code": 1, "message": 2, "self": 3, "to_wire": 4, "__class__": 5}},
        {
            "code": -32099,
            "type": "builtins.SystemExit",
            "data": {"type": "SystemExit", "exception": "KeyboardInterrupt"},
        },
        {},
    ],
    ids=lambda error: json.dumps(error)[:40],
)
def test_hostile_error_objects_do_no_harm(error: dict[str, Any]) -> None:
    received = RpcError.from_wire(error)
    assert type(received) in {RpcError, *ALL}
    assert callable(received.to_wire)
    assert json.loads(json.dumps(received.to_wire()))["data"]["retryable"] in (True, False)


def test_a_name_a_peer_sent_is_never_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def look_up(name: str, *_rest: Any, **_more: Any) -> None:
        looked_up.append(name)

    monkeypatch.setattr("builtins.__import__", look_up)
    for name in ("Overloaded", "protocol.errors.Overloaded", "os.system", "builtins.SystemExit"):
        error = {"code": -32099, "message": name, "name": name, "data": {"type": name, "class": name, "name": name}}
        assert type(RpcError.from_wire(error)) is RpcError
    assert looked_up == []
