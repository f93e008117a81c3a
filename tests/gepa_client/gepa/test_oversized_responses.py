"""Responses larger than the client reads: the error names the example, and the run continues."""

import pytest

from gepa_client import RemoteAdapter, Row, RpcClient
from protocol.errors import LimitExceeded

SEED = {"system": "s", "style": "t"}
ACCEPTED = 100_000


@pytest.fixture
def connect(server, monkeypatch):
    """Makes an adapter that reads answers of up to `ACCEPTED` bytes; the output of example 2 is larger."""
    monkeypatch.setitem(RpcClient.__init__.__kwdefaults__, "max_response_bytes", ACCEPTED)

    async def evaluate(candidate, example, traced):
        return server.ok(0.5, output="x" * (ACCEPTED if example.data["n"] == 2 else ACCEPTED // 3))

    server.evaluate_one = evaluate
    made = []

    def make():
        made.append(RemoteAdapter(server.url, first_backoff_s=0.001))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.mark.parametrize("whole_batches", [False, True])
def test_an_output_that_is_too_large_fails_its_example_alone(server, connect, whole_batches):
    server.limits["whole_batches"] = whole_batches
    batch = connect().evaluate([Row(str(number), {"n": number}) for number in range(5)], SEED)
    assert batch.scores == [0.5, 0.5, 0.0, 0.5, 0.5]
    assert [output is None for output in batch.outputs] == [False, False, True, False, False]
    assert server.runs["2"] == (2 if whole_batches else 1)


def test_a_server_that_refuses_a_large_answer_is_asked_for_one_example_after_another(server, connect):
    server.limits["whole_batches"] = True
    server.refusals.append(LimitExceeded("too large", limit="answer_bytes", allowed=5, given=9))
    batch = connect().evaluate([Row(str(number), {"n": number}) for number in (0, 2, 3)], SEED)
    assert batch.scores == [0.5, 0.0, 0.5]
