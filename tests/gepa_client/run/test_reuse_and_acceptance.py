"""Whole runs that reuse results, or accept by a paired test: extended and replayed, they are the same runs."""

from collections import Counter
from typing import Any

from tests.gepa_client.conftest import Cli, Ran, Serve
from tests.gepa_client.word_program import Script, rows, scored


def outcome(ran: Ran) -> list[tuple[Any, ...]]:
    return ran.found + [(event["reason"],) for event in ran.events if event["event"] == "rejected"]


def test_an_extended_run_evaluates_nothing_twice_and_is_replayed_as_it_was(serve: Serve, cli: Cli) -> None:
    settings = ("--deterministic", "--acceptance", "paired", "--proposals", "2x2")
    limits = ("--check", "off", "--json")
    seen: Counter[tuple[str, str]] = Counter()

    def noisy(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        seen[row["text"], candidate["rules"]] += 1
        result = scored(row, candidate)
        return {**result, "score": result["score"] / seen[row["text"], candidate["rules"]]}

    words = Script(datasets={"train": rows(15)}, evaluate=noisy)
    first = cli("optimize", serve(words), *settings, "--max-iterations", 3, *limits, "--past-perfect")
    assert first.status == 0, first.stderr
    extended = cli("resume", "last", "--max-iterations", 10, "--json")
    assert extended.status == 0, extended.stderr
    replayed = cli("replay", "last", "--json")
    assert outcome(extended)[: len(first.found)] == first.found
    assert outcome(extended) == outcome(replayed)
    calls, reused = (extended.event("finished")[name] for name in ("metric_calls", "reused"))
    assert (calls, reused) == tuple(replayed.event("finished")[name] for name in ("metric_calls", "reused"))
    made = Counter(
        (params["candidate"]["rules"], params["batch"][0]["id"], params["capture_traces"])
        for params in words.calls("evaluate")
    )
    assert calls == sum(made.values())  # every call is counted, and no result that was reused
    assert reused > 0
    assert set(made.values()) == {1}
    for ran in (extended, replayed):
        warned = [event["message"] for event in ran.events if event["event"] == "warning"]
        [message] = [message for message in warned if "taken to be deterministic" in message]
        assert "scored 1 and then 0.5 with the same candidate" in message
