"""The default records of steps are those that `dspy.GEPA` makes of the same trace of three predictors."""

import json
import subprocess
from pathlib import Path

import pytest

from rpc_server.worker.reflective_records import default_dataset

SCRIPT = Path(__file__).parent / "data" / "records_of_steps.py"
COMPONENTS = ["planner", "solver", "checker"]


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 1])
def test_the_records_of_each_component_are_those_of_dspy(dspy_python: Path, seed: int) -> None:
    made = subprocess.run(
        [str(dspy_python), str(SCRIPT), str(seed)], capture_output=True, text=True, timeout=100, check=True
    )
    expected = json.loads(made.stdout)
    batch = [{"id": str(row), "data": {}} for row in range(6)]
    dataset, images = default_dataset(batch, expected["results"], COMPONENTS, traced=True, seed=seed)
    assert json.dumps(dataset) == json.dumps(expected["records"])
    assert images == {}
    assert len({json.dumps(records) for records in dataset.values()}) == 3
