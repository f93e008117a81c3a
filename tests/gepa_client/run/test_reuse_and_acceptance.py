"""Whole runs that reuse results, or accept by a paired test: extended and replayed, they are the same runs."""

from collections import Counter
from typing import Any

from tests.gepa_client.conftest import Cli, Ran, Serve
from tests.gepa_client.word_program import Script, rows


def outcome(ran: Ran) -> list[tuple[Any, ...]]:
    return ran.found + [(event["reason"],) for event in ran.events if event["event"] == "rejected"]


def test_an_extended_run_evaluates_nothing_twice_and_is_replayed_as_it_was(serve: Serve, cli: Cli) -> None:
    settings = ("--deterministic", "--acceptance", "paired", "--proposals", "2x2")
    limits = ("--check", "off", "--json")
    words = Script(datasets={"train": rows(15)})
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


def test_a_program_with_another_score_for_the_same_row_is_reported_once(serve: Serve, cli: Cli) -> None:
    seen: Counter[tuple[str, int]] = Counter()

    def noisy(row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        place = candidate["rules"], int(row["text"].split()[1])
        seen[place] += 1
        return {"status": "ok", "score": seen[place] / 8, "output": "", "seconds": 0.0}

    words = Script(datasets={"train": rows(6), "test": rows(4, 20)}, evaluate=noisy)
    limits = ("--max-iterations", 6)
    ran = cli("optimize", serve(words), "--deterministic", *limits, "--check", "off", "--json")
    assert ran.status == 0, ran.stderr
    for each in (ran, cli("replay", "last", "--json")):
        warned = [event["message"] for event in each.events if event["event"] == "warning"]
        [message] = [message for message in warned if "taken to be deterministic" in message]
        assert "scored 0.125 and then 0.25 with the same candidate" in message
