"""Budgets in words come to the metric calls that `dspy.GEPA` makes of them, and are recorded as that number."""

import json
from typing import Any

import pytest

from gepa_client.run.resolved_settings import metric_call_budget
from gepa_client.settings.loading import load
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.word_program import Script, rows

URL = {"url": ["http://127.0.0.1:1"]}


@pytest.mark.parametrize(
    ("flags", "texts", "val", "calls"),
    [
        # by dspy.GEPA.auto_budget of DSPy 3.4.1: num_preds, valset_size
        ({"auto": "light"}, 1, 0, 380),
        ({"auto": "light"}, 1, 100, 780),
        ({"auto": "medium"}, 1, 100, 1190),
        ({"auto": "heavy"}, 1, 100, 1735),
        ({"auto": "light"}, 3, 50, 1515),
        ({"auto": "light"}, 1, None, 580),  # the 50 training rows are validated on
        ({"max_metric_calls": 7}, 1, 30, 7),
    ],
)
def test_a_budget_comes_to_as_many_metric_calls_as_with_dspy(
    flags: dict[str, Any], texts: int, val: int | None, calls: int
) -> None:
    assert metric_call_budget(load(None, URL | flags), texts=texts, train=50, val=val) == calls


def test_a_budget_in_words_is_stated_as_a_number_of_calls(serve: Serve, cli: Cli) -> None:
    url = serve(Script(seed={"rules": "red"}, datasets={"train": rows(12), "val": rows(6, 100)}))
    report = json.loads(cli("check", url, "--auto", "light", "--json").stdout)
    assert report["timing"]["budget"] == 404
