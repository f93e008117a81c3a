"""Records that do not fit into a reflection prompt are cut, the same in every process, and reported."""

from pathlib import Path
from typing import Any

import pytest

from gepa_client.run.resolved_settings import with_reflection_model
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.exported_page import page_text
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script, records

LONG = "begin " + "-" * 40_000 + " end"


def with_long_records(params: dict[str, Any]) -> dict[str, Any]:
    """The usual records, each with a long text before its feedback."""
    made = records(params)["dataset"]
    return {"dataset": {name: [{"Trace": LONG, **each} for each in own] for name, own in made.items()}}


def test_cut_records_are_in_prompts_events_and_report_and_a_replay_repeats_them(
    serve: Serve, cli: Cli, words: Script, model: list[str | int], tmp_path: Path
) -> None:
    words.reflect = with_long_records
    limits = ["--max-metric-calls", 60, "--reflection-prompt-tokens", 9000, "--reflection-minibatch-size", 4]
    ended = cli("optimize", serve(words), *model, *limits, "--check", "off", "--json")
    assert ended.status == 0, ended.stdout + ended.stderr
    prompts = [body["messages"][0]["content"] for body in words.calls("complete")]
    for prompt in prompts:
        assert 34_000 < len(prompt) < 36_500
        assert prompt.count(" characters left out …\n") == 4
        assert prompt.count("begin -") == prompt.count("- end") == prompt.count("needs ") == 4
    cuts = [event for event in ended.events if event["event"] == "records_cut"]
    assert len(cuts) == len(prompts)
    first = {"iteration": 1, "component": "rules", "records": 4, "shortened": 4, "left_out": 0}
    assert cuts[0].items() >= {**first, "setting": "reflection_prompt_tokens"}.items()
    assert 31_000 < cuts[0]["tokens"] < 33_000
    report = page_text(only_run(tmp_path) / "report.html")
    summary = f"in {len(cuts)} reflection prompts (iterations 1 to {cuts[-1]['iteration']}) {4 * len(cuts)} records"
    assert summary in report
    assert "to show more, raise reflection_prompt_tokens" in report
    replayed = cli("replay", "last", "--json", "--output", "again")
    assert replayed.status == 0, replayed.stdout + replayed.stderr
    assert replayed.timeless("records_cut") == ended.timeless("records_cut")


@pytest.mark.parametrize(
    ("settings", "tokens", "images"),
    [
        ({"reflection_lm": "openai/gpt-5"}, 136_000, True),
        ({"reflection_lm": "openai/o3-mini"}, 100_000, False),
        ({"reflection_lm": "openai/a-model-of-my-own"}, 64_000, True),
        ({"reflection_lm": "openai/gpt-5", "reflection_prompt_tokens": 5000, "reflection_images": False}, 5000, False),
        ({}, None, None),
    ],
)
def test_prompts_have_half_of_the_models_window_and_images_if_it_takes_them(
    settings: dict[str, Any], tokens: int | None, images: bool | None
) -> None:
    found = with_reflection_model(RunConfig(url=("http://127.0.0.1:1",), **settings))
    assert (found.reflection_prompt_tokens, found.reflection_images) == (tokens, images)
