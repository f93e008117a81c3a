"""Answers of reflection that hold no new text are asked for once more, then dropped, counted and reported."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run.conftest import model_arguments
from tests.gepa_client.run_folder import only_run, stored
from tests.gepa_client.scripted_server import Host, chat_completion
from tests.gepa_client.word_program import WORDS, Script, rows

Answer = tuple[str, str]
"""A text and its finish reason."""

AGAIN = "You have answered this once already"
BAD: dict[str, Answer] = {
    "truncated": ("```\nred green and then", "length"),
    "monologue": ("<think>\nThe rules lack words, so", "stop"),
    "empty": ("```\n```", "stop"),
    "too long": ("```\n" + "red " * 300 + "\n```", "stop"),
}


def new_text(prompt: str) -> Answer:
    """Every word of the task that the prompt has, with a word that makes the text another one each time."""
    return f"```\n{' '.join(word for word in WORDS if word in prompt)} {len(prompt)}\n```", "stop"


@pytest.fixture
def model(host: Host) -> Callable[[Callable[[str], Answer]], list[str | int]]:
    """Serves a reflection model whose answers a function of the prompt gives; returns the arguments that name it."""

    def served(answer: Callable[[str], Answer]) -> list[str | int]:
        async def complete(request: web.Request) -> web.Response:
            body = await request.json()
            text, finish = answer(body["messages"][0]["content"])
            return chat_completion(body["model"], text, finish)

        return [*model_arguments(host, complete, "openai/gpt-4o-mini"), "--check", "off"]

    return served


def evaluated(words: Script) -> set[str]:
    return {params["candidate"]["rules"] for params in words.calls("evaluate")}


def test_bad_answers_are_asked_for_once_more_with_the_reason_then_dropped_and_reported(
    serve: Serve, cli: Cli, words: Script, model: Callable[..., list[str | int]], tmp_path: Path
) -> None:
    prompts: list[str] = []
    reasons: Iterator[str] = iter([*BAD, *BAD] * 9)
    given: list[tuple[str, str | None]] = []

    def answer(prompt: str) -> Answer:
        prompts.append(prompt)
        if AGAIN not in prompt:
            given.append((next(reasons), None))
            return BAD[given[-1][0]]
        if len(given) % 8 > 4:
            return new_text(prompt)
        given[-1] = (given[-1][0], "truncated")
        return BAD["truncated"]

    limits = ["--max-metric-calls", 130, "--max-component-tokens", 250]
    ended = cli("optimize", serve(words), *model(answer), *limits, "--json")
    assert ended.status == 0, ended.stdout + ended.stderr
    found = ended.timeless("unusable_answer")
    assert [(event["reason"], event["then"]) for event in found] == given
    assert all(event["asked_again"] and event["dropped"] == (event["then"] is not None) for event in found)
    assert len(prompts) == 2 * len(given)
    assert all("must have at most 250 tokens, that is about 1,000 characters." in prompt for prompt in prompts)
    assert [AGAIN in prompt for prompt in prompts] == [False, True] * len(given)
    assert not any("then" in text or "<think>" in text or len(text) > 1_000 for text in evaluated(words))

    counts = Counter(reason for pair in given for reason in pair if reason is not None)
    dropped = sum(second is not None for _, second in given)
    totals = ended.event("summary")["unusable_answers"]
    assert totals == {"reasons": dict(counts), "asked_again": len(given), "dropped": dropped}
    summary = f"{len(given)} asked for once more, {dropped} texts dropped"
    assert summary in page_text(only_run(tmp_path) / "report.html")
    with stored(tmp_path) as (store, run_id):
        [spent] = [spent for spent in store.spending(run_id) if spent.kind == "completion"]
    assert (spent.attempts, spent.examples) == (len(prompts), len(prompts))
    assert ended.event("finished")["reflection_usd"] == pytest.approx(spent.cost_usd)
    assert spent.cost_usd > 0

    replayed = cli("replay", "last", "--json", "--output", "again")
    assert replayed.status == 0, replayed.stdout + replayed.stderr
    assert replayed.timeless("unusable_answer") == found
    assert len(prompts) == 2 * len(given)
    assert len(ended.found) > 1
    assert replayed.timeless("candidate") == ended.timeless("candidate")


def test_a_run_that_has_no_usable_answer_states_why_it_did_not_improve(
    serve: Serve, cli: Cli, words: Script, model: Callable[..., list[str | int]]
) -> None:
    ended = cli("optimize", serve(words), *model(lambda _: BAD["monologue"]), "--max-metric-calls", 30)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert evaluated(words) == {""}
    assert "without a proposal (no usable text: monologue)" in ended.stdout
    assert "another `reflection_lm`: 6 texts had to be dropped (monologue)" in ended.stdout


def test_texts_of_a_program_that_are_unchanged_empty_or_too_long_are_dropped_and_counted(
    serve: Serve, cli: Cli, words: Script
) -> None:
    made = iter(["", "  \n", " ".join(WORDS) * 40, *(" ".join(WORDS[:at]) for at in range(1, 7)), *[""] * 99])
    words.propose = lambda params: {"texts": dict.fromkeys(params["components_to_update"], next(made))}
    words.seed["rules"] = "rules"
    ended = cli(
        "optimize", serve(words), "--max-metric-calls", 90, "--max-component-tokens", 200, "--json", "--check", "off"
    )
    assert ended.status == 0, ended.stdout + ended.stderr
    found = ended.timeless("unusable_answer")
    assert [event["reason"] for event in found[:3]] == ["empty", "empty", "too long"]
    assert all(event["dropped"] and not event["asked_again"] and event["then"] is None for event in found)
    assert "rules: empty)" in json.loads(cli("show", "last", "--json").stdout)["proposals"][0]["why"]
    assert all(0 < len(text) < 800 for text in evaluated(words))


def test_examples_that_candidates_copied_from_training_rows_are_reported(
    serve: Serve, cli: Cli, words: Script, tmp_path: Path
) -> None:
    message = "I was charged twice for the order of last Monday and got no answer"
    words.datasets["train"] = [
        {**row, "text": f"{message}, {row['text']}" if at == 7 else row["text"]} for at, row in enumerate(rows(30))
    ]
    words.propose = lambda params: {
        "texts": {name: f'{" ".join(WORDS)}. Example: "{message}"' for name in params["components_to_update"]}
    }
    ended = cli("optimize", serve(words), "--max-metric-calls", 60, "--json", "--check", "off")
    assert ended.status == 0, ended.stdout + ended.stderr
    found = ended.event("copied_examples")
    assert found["count"] == 1
    assert found["copies"] == [
        {"candidate": 1, "component": "rules", "words": 14, "text": message, "rows": ["7"], "row_count": 1}
    ]
    assert json.loads(cli("show", "last", "--json").stdout)["copied_examples"]["copies"] == found["copies"]
    summary = "1 part of training rows: 14 words of row 7 in candidate 1 (rules)"
    assert summary in page_text(only_run(tmp_path) / "report.html")
