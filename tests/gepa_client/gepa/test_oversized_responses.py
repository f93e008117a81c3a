"""Responses larger than the client reads: the error names the example, and the run continues."""

import pytest

from gepa_client import RemoteAdapter, Row, RpcClient
from protocol.errors import LimitExceeded

SEED = {"system": "s", "style": "t"}
ACCEPTED = 100_000


@pytest.fixture(autouse=True)
def _limit(server, monkeypatch):
    """Clients read answers of up to `ACCEPTED` bytes; the output of example 2 is larger."""
    monkeypatch.setitem(RpcClient.__init__.__kwdefaults__, "max_response_bytes", ACCEPTED)
    server.evaluate_one = lambda _candidate, example, _traced: server.ok(
        0.5, output="x" * (ACCEPTED if example.data["n"] == 2 else ACCEPTED // 3)
    )


def evaluated(server, *numbers):
    with RemoteAdapter(server.url, first_backoff_s=0.001) as adapter:
        return adapter.evaluate([Row(str(number), {"n": number}) for number in numbers], SEED)


@pytest.mark.parametrize("whole_batches", [False, True])
def test_an_output_that_is_too_large_fails_its_example_alone(server, whole_batches):
    server.limits["whole_batches"] = whole_batches
    batch = evaluated(server, *range(5))
    assert batch.scores == [0.5, 0.5, 0.0, 0.5, 0.5]
    assert [output is None for output in batch.outputs] == [False, False, True, False, False]
    assert server.runs["2"] == (2 if whole_batches else 1)


def test_a_server_that_refuses_a_large_answer_is_asked_for_one_example_after_another(server):
    server.limits["whole_batches"] = True
    server.capabilities.append("batch_evaluate")
    server.refusals.append(LimitExceeded("too large", limit="answer_bytes", allowed=5, given=9))
    other, rows = {**SEED, "style": "u"}, [Row(str(number), {"n": number}) for number in (0, 2, 3)]
    with RemoteAdapter(server.url, first_backoff_s=0.001) as adapter:
        first, second = adapter.batch_evaluate([(SEED, rows[:2]), (other, rows[2:])])
    assert (first.scores, second.scores) == ([0.5, 0.0], [0.5])
    assert [params["candidate"] for params in server.called("evaluate")[1:]] == [SEED, SEED, other]
