"""Runs in a store of journals, made by `gepa-client optimize` against a scripted server."""

import subprocess
from pathlib import Path

from tests.gepa_client.conftest import Host, command, environment
from tests.gepa_client.word_program import Script, rows

TIMEOUT_S = 90


def optimized(folder: Path, script: Script | None = None, metric_calls: int = 60) -> str:
    """Make a run in `folder/journals.db`; return its id."""
    host = Host()
    try:
        used = script or Script(datasets={"train": rows(12), "val": rows(6, 50), "test": rows(12, 80)})
        url = host.serve(used.server().handle)
        made = command(
            "optimize", url, "--max-metric-calls", metric_calls, "--store", folder / "journals.db", "--no-check"
        )
        ended = subprocess.run(
            made, cwd=folder, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    finally:
        host.close()
    return next(each.name for each in (folder / "runs").iterdir() if each.is_dir())
