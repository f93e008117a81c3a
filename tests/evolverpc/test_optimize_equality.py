"""`evolverpc.optimize` finds the candidates of the commands `evolverpc serve` and `evolverpc optimize`."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.forked_client import ForkServer
from tests.support.rounds import rounds

TOKEN = "token-of-the-tests"

pytestmark = pytest.mark.timeout(300)  # three whole runs


def candidates(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())["candidates"]


def by_the_command(units: ModuleType, folder: Path, seed: int, fork_server: ForkServer) -> Any:
    """The candidates of the command, whose program has the function `propose` under the name of the contract."""
    program = folder / "served.py"
    program.write_text((folder / "units.py").read_text() + "\n\npropose_new_texts = propose\n")
    sets = {"trainset": range(2), "valset": range(2, 5), "testset": range(5, 7)}
    for name, numbers in sets.items():
        (folder / f"{name}.json").write_text(json.dumps(units.rows(numbers)))
    files = [word for name in sets for word in (f"--{name}", f"{name}.json")]
    env = {"GEPA_TOKEN": TOKEN}
    flags = ["--max-metric-calls", "150", "--module-selector", "all", "--proposals", "2", "--seed", str(seed)]
    with fork_server.running_server(
        "--program", program.name, "--python", sys.executable, cwd=folder, env=env
    ) as server:
        optimize = ["optimize", server.url, *files, *flags, "--output", "command"]
        status, _, stderr = fork_server.run(optimize, folder=folder, environment=env)
    assert status == 0, stderr.decode()
    return candidates(folder / "command")


@pytest.mark.repeated
@pytest.mark.parametrize("seed", [(1, 5)[number] for number in rounds(2)])
def test_functions_give_the_candidates_of_the_command(
    units: ModuleType, folder: Path, fork_server: ForkServer, seed: int
) -> None:
    by_functions = candidates(units.optimized(vars(units), seed).output)

    assert len(by_functions) > 2
    assert by_functions == by_the_command(units, folder, seed, fork_server)
    assert by_functions[-1]["rules"] != by_functions[0]["rules"]
