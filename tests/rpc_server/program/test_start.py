"""The start of a program, and the errors of one that cannot start."""

import os
import sys
import time
from pathlib import Path

import pytest

from protocol.errors import ProgramFailed
from rpc_server.program.launcher import find_interpreter
from rpc_server.settings import Settings

START_S = 20.0
"""The time limit of a start that `opened` gives."""


async def failure(opened, program=None, **settings):
    started = time.monotonic()
    with pytest.raises(ProgramFailed) as failed:
        async with opened(program, **settings):
            pass
    return failed.value, time.monotonic() - started


async def test_a_program_that_fails_at_import_is_reported_long_before_its_time_limit(opened):
    error, seconds = await failure(opened, "fails_at_import.py")
    assert seconds < START_S / 2
    assert error.details["stage"] == "import"
    assert error.message == "ModuleNotFoundError: No module named 'a_package_that_does_not_exist'"
    assert "fails_at_import.py" in error.details["traceback"]
    assert "importlib" not in error.details["traceback"]
    assert error.details["log_tail"] == "importing\n"
    assert sys.executable.rpartition("/")[0] in error.details["interpreter"] or "python" in error.details["interpreter"]


@pytest.mark.parametrize(
    ("source", "stage", "message"),
    [
        ("seed_candidate = {'a': 'b'}\n", "program", "no function `run"),
        ("def run(example, candidate): pass\n", "seed_candidate", "define `seed_candidate` in the program"),
        ("seed_candidate = {'a': 1}\ndef run(e, c): pass\n", "seed_candidate", "must be text"),
        ("import os; print('last words', flush=True); os.kill(os.getpid(), 11)\n", "start", "SIGSEGV"),
    ],
)
async def test_an_invalid_program_is_reported_with_what_it_lacks(opened, tmp_path, source, stage, message):
    (tmp_path / "mine.py").write_text(source)
    error, seconds = await failure(opened, "mine.py", root=tmp_path, python=Path(sys.executable))
    assert error.details["stage"] == stage
    assert message in error.message
    assert seconds < START_S / 2


@pytest.mark.parametrize(
    ("program", "named"), [("nowhere.py", "nowhere.py"), ("no.such.module", "No module named 'no'")]
)
async def test_a_file_or_module_that_is_not_there_is_named(opened, program, named):
    error, _ = await failure(opened, program)
    assert named in error.message


async def test_an_interpreter_that_is_not_there_is_named(opened):
    error, _ = await failure(opened, "plain.py", python=Path("/no/such/python"))
    assert error.details["stage"] == "start"
    assert "/no/such/python" in error.message
    assert error.details["interpreter"] == "/no/such/python"


async def test_the_worker_hides_no_module_of_the_program(opened):
    async with opened("neighbours/main.py") as running:
        output = (await running.one({}))["output"]
        assert output["theirs"] == ["frames", "functions", "hosts", "queue", "serving"]
        assert output["ours"] == ["main"]  # the program itself
        assert output["name"] == "main"


async def test_a_program_runs_in_the_root_without_the_servers_token(opened, monkeypatch):
    monkeypatch.setenv("GEPA_TOKEN", "secret")
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setenv("ADDED", "by the server")
    async with opened("behaves.py", env={"ADDED": "too"}) as running:
        seen = await running.one({"do": "environment", "names": ["GEPA_TOKEN", "KEPT", "ADDED"]})
        assert seen["output"] == {"GEPA_TOKEN": None, "KEPT": "yes", "ADDED": "too"}
        where = (await running.one({"do": "where"}))["output"]
        data = str(Path(__file__).parent / "data")
        assert where == {"cwd": data, "path": data}


async def test_a_program_that_started_threads_is_not_forked(opened):
    async with opened("starts_threads.py") as running:
        results = await running.evaluate(*[{}] * 4)
        assert [result["output"] for result in results] == ["the thread is alive"] * 4


def test_the_interpreter_is_the_one_set_then_the_projects_then_the_active_then_the_paths(tmp_path, monkeypatch):
    def found(**settings):
        return find_interpreter(Settings(root=tmp_path, program="x", **settings))

    def make(path):
        path.parent.mkdir(parents=True)
        path.symlink_to(sys.executable)
        return path

    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert found() == Path(sys.executable)
    on_path = make(tmp_path / "bin" / "python3")
    monkeypatch.setenv("PATH", f"{tmp_path / 'empty'}{os.pathsep}{on_path.parent}")
    assert found() == on_path
    active = make(tmp_path / "env" / "bin" / "python")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    assert found() == active
    in_project = make(tmp_path / ".venv" / "bin" / "python")
    assert found() == in_project
    assert found(python=Path("mine/python")) == tmp_path / "mine" / "python"
