"""`evolverpc sandboxes` lists sandboxes and sweeps orphans."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gepa_client.cli.commands.sandboxes import sandboxes
from sandbox_runtime.backends.records import SandboxRecords

LEAVES = (
    "import sys; from sandbox_runtime.backends.records import SandboxRecords;"
    " SandboxRecords('process').add({'run': sys.argv[1]})"
)

Command = Callable[..., int]


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="gepa-"))  # short, as sockets could be in it
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(folder / "none"))
    monkeypatch.setenv("COLUMNS", "120")
    yield
    shutil.rmtree(folder)


@pytest.fixture
def asked() -> Command:
    def run(**given: Any) -> int:
        names = ("run", "sandbox", "modal_app", "repo", "ref", "git_token_file")
        default: dict[str, Any] = dict.fromkeys(names)
        default |= dict.fromkeys(("sweep", "every", "yes", "publish", "as_json"), False)
        try:
            sandboxes(**{**default, **given})
        except typer.Exit as ended:
            return ended.exit_code
        return 0

    return run


def left_behind(run: str) -> None:
    """One whose owner has ended."""
    subprocess.run([sys.executable, "-c", LEAVES, run], check=True, timeout=60)


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_orphans_are_swept_and_sandboxes_in_use_are_not(asked: Command, capsys: pytest.CaptureFixture[str]) -> None:
    left_behind("left")
    used = SandboxRecords("process").add({"run": "driven", "name": "mine"})
    assert asked() == 0
    listed = capsys.readouterr().out
    assert "orphan" in listed
    assert "in use" in listed
    assert listed.splitlines()[-2:] == [
        "1 of 2 have no owner any more",
        "next: evolverpc sandboxes --sweep",
    ]
    assert asked(sweep=True) == 0
    assert "1 sandbox ended, 1 left" in capsys.readouterr().out
    assert asked(as_json=True) == 0
    assert [(row["id"], row["run"], row["name"], row["orphan"]) for row in rows(capsys)] == [
        (used.id, "driven", "mine", False)
    ]


def test_all_of_a_run_are_ended_by_its_name_and_no_others(asked: Command, capsys: pytest.CaptureFixture[str]) -> None:
    left_behind("one")
    left_behind("other")
    mine = SandboxRecords("process").add({"run": "one"})
    assert asked(run="one", sweep=True, as_json=True) == 0
    swept = rows(capsys)
    assert [row["ended"] for row in swept] == [True, True]
    assert mine.id in {row["id"] for row in swept}
    assert asked(as_json=True) == 0
    assert [row["run"] for row in rows(capsys)] == ["other"]


def test_sandboxes_in_use_are_ended_only_with_a_second_flag(asked: Command, capsys: pytest.CaptureFixture[str]) -> None:
    SandboxRecords("process").add({"run": "one"})
    assert asked(sweep=True, every=True) == 2
    assert "--yes" in capsys.readouterr().err
    assert asked(sweep=True, every=True, yes=True, as_json=True) == 0
    assert [row["ended"] for row in rows(capsys)] == [True]
    assert asked(as_json=True) == 0
    assert rows(capsys) == []


def test_contradicting_flags_are_refused(asked: Command) -> None:
    for given in ({"every": True}, {"publish": True}, {"publish": True, "repo": ".", "sweep": True}):
        assert asked(**given) == 2, given


def test_a_backend_that_cannot_be_listed_is_named_and_the_others_are_shown(
    asked: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("sandbox_runtime.backends.bubblewrap.runtime.BubblewrapRuntime.found", broken)
    left_behind("one")
    assert asked() == 3
    output = capsys.readouterr()
    assert "orphan" in output.out
    assert "bubblewrap: not yours" in output.err
