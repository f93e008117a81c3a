"""The default records of steps are those that `dspy.GEPA` makes of the same trace of three predictors."""

import json
import subprocess
from pathlib import Path

from rpc_server.worker.reflective_records import default_dataset

SCRIPT = Path(__file__).parent / "data" / "records_of_steps.py"
COMPONENTS = ["planner", "solver", "checker"]
SEEDS = (0, 7, 2**40 + 1)


def test_the_records_of_each_component_are_those_of_dspy(dspy_python: Path) -> None:
    command = [str(dspy_python), str(SCRIPT), *map(str, SEEDS)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    expected = json.loads(made.stdout)
    batch = [{"id": str(row), "data": {}} for row in range(6)]
    for seed, records in zip(SEEDS, expected["records"], strict=True):
        dataset, images = default_dataset(batch, expected["results"], COMPONENTS, traced=True, seed=seed)
        assert json.dumps(dataset) == json.dumps(records), seed
        assert images == {}
        assert len({json.dumps(each) for each in dataset.values()}) == 3
