"""The worker under the oldest interpreter it is meant for, with nothing installed but the standard library."""

from pathlib import Path

import pytest


def old_python() -> Path | None:
    """A Python 3.8, where one is installed."""
    for path in sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python")):
        return path
    return None


@pytest.mark.skipif(old_python() is None, reason="no Python 3.8 is installed here (looked for by pyenv)")
@pytest.mark.parametrize("program", ["behaves.py", "waits.py"])
async def test_programs_run_under_python_3_8(opened, program):
    async with opened(program, python=old_python(), example_timeout_s=1.0) as running:
        results = await running.evaluate({}, {"do": "pid"}, {"do": "raise", "error": "ValueError('x')"}, {"do": "exit"})
        assert [result["status"] for result in results] == ["ok", "ok", "program_error", "program_error"]
        assert [result.get("error", {}).get("type") for result in results[2:]] == ["ValueError", "process_died"]
        slow = await running.one({"do": "sleep", "seconds": 60} if program == "behaves.py" else {"seconds": 60})
        assert slow["status"] == "timeout"
