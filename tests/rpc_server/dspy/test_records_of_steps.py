"""The records of steps are those that `dspy.GEPA` makes of the same trace of three predictors."""

import json
import subprocess
from pathlib import Path

from gepa_client.gepa.reflective_records import customary_records

SCRIPT = Path(__file__).parent / "data" / "records_of_steps.py"
COMPONENTS = ["planner", "solver", "checker"]
SEEDS = (0, 7, 2**40 + 1)


def test_the_records_of_each_component_are_those_of_dspy(dspy_python: Path) -> None:
    command = [str(dspy_python), str(SCRIPT), *map(str, SEEDS)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    expected = json.loads(made.stdout)
    examples = [({}, result) for result in expected["results"]]
    for seed, records in zip(SEEDS, expected["records"], strict=True):
        answer = customary_records(examples, COMPONENTS, {}, seed=seed)
        dataset = answer.pop("dataset")
        assert json.dumps(dataset) == json.dumps(records), seed
        assert answer == {}
        assert len({json.dumps(each) for each in dataset.values()}) == 3
