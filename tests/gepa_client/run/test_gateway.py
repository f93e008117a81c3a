"""The journal entries, sums and events of a gateway's messages, also after a pause."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gepa_client.errors import JournalError
from gepa_client.journal.entries import GATEWAY, MODEL_CALL
from gepa_client.journal.history import all_rows
from gepa_client.journal.run_events import CallRefused, Event, ModelCalls, ModelTally
from gepa_client.journal.store import Store
from gepa_client.run.control_messages import GatewayMessage, ModelCallMessage
from gepa_client.run.gateway_record import GatewayRecord, record_late_calls, recorded_gateway_events
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, watched


def call(number: int = 0, **given: Any) -> ModelCallMessage:
    call = {"provider": "openai", "model": "small", "status": 200, "seconds": 0.5, "cost_usd": 0.25}
    return ModelCallMessage.model_validate(
        {"sandbox": f"sandbox-{number}", "input_tokens": 7, "output_tokens": 2} | call | given
    )


def refusal(what: str = "CONNECT far.example.org:443", reason: str = "not allowed", times: int = 1) -> CallRefused:
    return CallRefused(sandbox="s-1", what=what, reason=reason, times=times)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with watched(tmp_path) as found:
        yield found


def received(store: Store, *messages: GatewayMessage, **options: Any) -> tuple[list[Event], ModelCalls | None, float]:
    """Receive the messages, the first before there is a journal; return the events, the tally and the run's costs."""
    events: list[Event] = []
    record = GatewayRecord()
    for message in messages[:1]:
        record.receive(message)
    with recording(store, **options) as journal:
        record.begin(journal, store, events.append)
        for message in messages[1:]:
            record.receive(message)
        news = record.news(at_once=True)
        record.end()
        return events, news, journal.spending.cost_usd


def test_calls_are_attempts_with_a_price_and_consecutive_numbers(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr("gepa_client.run.gateway_record.MODELS_KEPT", 2)
    _, news, spent = received(store, call(), call(1, model="large", cost_usd=None), call(status=500, cost_usd=None))
    assert spent == 0.25
    assert news is not None
    assert news.by_model["openai/large"] == ModelTally(calls=1, input_tokens=7, output_tokens=2, unpriced=1)
    _, news, spent = received(
        store, call(2), call(3, provider="anthropic", status=0, cost_usd=None, input_tokens=None, output_tokens=None)
    )
    assert spent == 0.5
    made = store.attempts(RUN.id, GATEWAY)
    assert [(attempt.number, attempt.attempt, attempt.kind) for attempt in made] == [
        (number, 1, MODEL_CALL) for number in range(5)
    ]
    assert [(attempt.endpoint, attempt.instance, attempt.outcome) for attempt in made] == [
        ("openai/small", "sandbox-0", "ok"),
        ("openai/large", "sandbox-1", "ok"),
        ("openai/small", "sandbox-0", "error"),
        ("openai/small", "sandbox-2", "ok"),
        ("others", "sandbox-3", "lost"),
    ]
    assert news is not None
    assert news.total == ModelTally(calls=5, failed=2, input_tokens=28, output_tokens=8, cost_usd=0.5, unpriced=2)
    assert recorded_gateway_events(store, RUN.id) == (news, [])


def test_refusals_are_written_as_the_gateway_reports_them_and_counted(store: Store) -> None:
    capped = refusal(reason="the limit is reached")
    events, news, _ = received(store, refusal(), capped, refusal(times=1000))
    first = CallRefused(sandbox="s-1", what="CONNECT far.example.org:443", reason="not allowed")
    other = CallRefused(sandbox="s-1", what="CONNECT far.example.org:443", reason="the limit is reached")
    assert events == [first, other, first.model_copy(update={"times": 1001})]
    assert news == ModelCalls(refused=1002)
    assert len(store.entries(RUN.id, GATEWAY)) == 3
    events, news, _ = received(store, refusal())
    assert events[-1] == first.model_copy(update={"times": 1002})
    assert recorded_gateway_events(store, RUN.id)[1] == [first.model_copy(update={"times": 1002}), other]


def test_a_secret_in_a_refused_request_is_not_written(store: Store) -> None:
    secret = "sk-0123456789"
    events, news, _ = received(
        store, refusal(f"CONNECT {secret}.example.org:443"), call(model=secret, sandbox=secret), secrets=[secret]
    )
    written = [*all_rows(store, RUN.id), *events, news]
    assert len(written) == 4
    assert secret not in repr(written)
    assert "[redacted]" in repr(written)


def test_calls_that_end_after_the_driver_are_written_too_unless_another_one_has_the_run(store: Store) -> None:
    received(store, call())
    late: tuple[Any, ...] = (store.url, RUN.id, ["0123456789"], [call(1), refusal("0123456789")])
    news: list[Any] = record_late_calls(*late)
    refused, calls = news
    assert calls == ModelCalls(refused=1, total=calls.total, by_model={"openai/small": calls.total})
    assert (calls.total.calls, calls.total.cost_usd, len(store.attempts(RUN.id, GATEWAY))) == (2, 0.5, 2)
    assert "0123456789" not in repr([refused, *all_rows(store, RUN.id)])
    with recording(store), pytest.raises(JournalError, match="another process drives this run"):
        record_late_calls(*late)
