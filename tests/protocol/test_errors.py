"""The error tree: drawn as it is, one code each, the same after a trip over the wire, deaf to names a peer sends."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ALL, BY_CODE, RpcError

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
details = st.dictionaries(st.text().filter(lambda key: key != "retryable"), json_values, max_size=4)


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
