"""`evolverpc.optimize` in a notebook: a real kernel, whose event loop runs already."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

START = """\
import asyncio, os, signal
assert asyncio.get_running_loop().is_running()
interrupted = []

def interrupting(candidate, dataset, components):
    if not interrupted and "gram" in candidate["rules"]:
        interrupted.append(True)
        os.kill(os.getpid(), signal.SIGINT)  # as the kernel's button does
    return propose(candidate, dataset, components)

given = {"trainset": rows(range(2)), "valset": rows(range(2, 5)), "propose": interrupting, "max_metric_calls": 200}
"""
PAUSED = """\
try:
    evolverpc.optimize(globals(), **given)
except evolverpc.OptimizeError as error:
    paused = error
paused.result.status, interrupted
"""
RESUMED = "result = eval(str(paused).rpartition(': ')[2])\nassert result.run_id == paused.run_id"


def executed(folder: Path, *cells: str) -> list[list[Any]]:
    """The outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_a_run_has_one_table_updated_in_place_pauses_at_an_interrupt_and_ends_with_a_diff(
    units: ModuleType, folder: Path
) -> None:
    functions = (folder / "units.py").read_text().partition("def optimized")[0]
    _, _, paused, resumed, shown = executed(folder, functions, START, PAUSED, RESUMED, "result.diff")

    def html(outputs: list[Any]) -> list[str]:
        return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]

    table, diff = html(paused)
    assert "paused" in table
    assert paused[-1].data["text/plain"] == "('paused', [True])"
    assert "mass" in diff
    table, diff = html(resumed)
    assert "completed" in table
    assert "seed 0.33 · best " in table
    assert "<ins>" in diff
    assert "gram -&gt; mass" in diff
    assert html(shown) == [diff]
