"""What the list of runs keeps in a narrow terminal."""

from rich.console import Console

from gepa_client.cli.commands.runs import run_table
from gepa_client.journal.entries import StoredRun


def test_ids_and_scores_are_whole_in_a_terminal_of_80_columns() -> None:
    run_id = "20261129-142422-2645-a-long-name-of-a-run-that-ends-elsewhere"
    run = StoredRun(id=run_id, name=run_id[21:], config={"max_metric_calls": 360}, best={"score": 0.67}, counters={})
    console = Console(width=80, record=True)
    console.print(run_table([run], {run_id: 0.39}, 80))
    row = console.export_text().splitlines()[1]
    assert all(each in row for each in ("20261129-142422-2645", "0.39 -> 0.67", "-/360"))
