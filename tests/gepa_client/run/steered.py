"""What a steered run reported and wrote."""

import json
from pathlib import Path
from typing import Any

from tests.gepa_client.conftest import Ran


def steered(ran: Ran) -> list[tuple[Any, ...]]:
    """Return the requests that a run took, and the best candidate after each."""
    return [
        (event["number"], event["action"], event["text"], event["best"], event["front"])
        for event in ran.events
        if event["event"] == "steered" and event["refused"] is None
    ]


def result_of(ran: Ran) -> tuple[Any, ...]:
    """Return what a run wrote: the best candidate's index, all candidates and scores."""
    result = json.loads((Path(ran.event("summary")["output"]) / "result.json").read_text())
    fronts = {row: sorted(front) for row, front in result["per_val_instance_best_candidates"].items()}
    return result["best_idx"], result["candidates"], result["val_subscores"], result["total_metric_calls"], fronts
