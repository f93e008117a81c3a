"""Rows of a CSV file, of the server or of the client, have the types that a DSPy program declares."""

import csv
from pathlib import Path

from gepa_client import RemoteAdapter
from gepa_client.gepa.row_loaders import Row, load_rows
from sandbox_runtime import running_server
from tests.rpc_server.dspy.test_equality import NO_FETCH, SERVER, TOKEN

ROW = {"text": "late", "stars": "3", "urgent": "False", "tags": '["a"]', "team": "billing", "due": "2026-03-01"}


def test_rows_of_a_csv_file_have_the_declared_types_whether_server_or_client_holds_them(
    project: Path, dspy_python: Path
) -> None:
    with (project / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerow(ROW)
    program = ["--kind", "dspy", "--program", "typed.Reviews", "--metric", "typed.labels", "--python", str(dspy_python)]
    command = [str(SERVER), *program, "--datasets", "train=rows.csv"]
    with (
        running_server(command, cwd=project, env={"GEPA_TOKEN": TOKEN, **NO_FETCH}) as server,
        RemoteAdapter(server.url, token=TOKEN) as adapter,
    ):
        held, sent = adapter.dataset("train").fetch([0]), load_rows(project / "rows.csv")
        typed = [Row("0", ROW)]
        scores = [adapter.evaluate(rows, adapter.seed_candidate).scores for rows in (held, sent, typed)]
    assert scores == [[5.0], [5.0], [0.0]]
