"""The processes that batches and steps share: what one of them does not do holds up no other."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.redaction import Secrets
from gepa_service.jobs import shared_processes
from gepa_service.jobs.job_environment import basic_environment
from gepa_service.jobs.messages import Ended, ProgramOrder
from gepa_service.jobs.shared_processes import GIT, PREFIX, RunningWork, SharedProcesses
from gepa_service.model.work import ProgramWork
from tests.gepa_service.platform import shared_processes_in
from tests.support.waiting import until

LARGER_THAN_A_PIPE = 1 << 20


def begun(processes: SharedProcesses, folder: Path, name: str, text: str = "", **secrets: str) -> RunningWork:
    """Begin a work, whose settings are not taken, in the process of a repository of its name."""
    work = folder / name
    for path in (work, work / "home", work / "tmp"):
        path.mkdir(exist_ok=True)
    settings: dict[str, Any] = {"repo": text, "no": "setting"}
    program = ProgramWork(tasks=({"text": text},))
    order = ProgramOrder(
        id=name,
        folder=work,
        settings=settings,
        what="rollouts",
        program=program,
        done=frozenset(),
        warm_mb=0,
        secrets=secrets,
    )
    return processes.begin(("acme", f"/{name[0]}"), order, basic_environment(work), "", Secrets())


def end_of(work: RunningWork) -> str | None:
    """Return how a work ended, None if its process did before."""
    messages = []
    until(lambda: messages.append(work.next()) or work.is_silent)
    return next((each.status for each in messages if isinstance(each, Ended)), None)


def test_a_process_that_reads_nothing_holds_up_no_other_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_processes, "READ_S", 1.0)
    with SharedProcesses(tmp_path, keep_warm=False) as processes:
        begun(processes, tmp_path, "a1", "x" * LARGER_THAN_A_PIPE)
        [process] = until(lambda: shared_processes_in(tmp_path))
        os.kill(process, signal.SIGSTOP)
        second = begun(processes, tmp_path, "a2", "x" * LARGER_THAN_A_PIPE)
        assert shared_processes_in(tmp_path) == [process]
        keys = {"b1": {}, "a3": {"KEY": "another"}, "a4": {}}
        others = [begun(processes, tmp_path, name, **given) for name, given in keys.items()]
        assert len(shared_processes_in(tmp_path)) == 4, "one has one program and one set of secrets, the present one"
        assert [end_of(each) for each in others] == 3 * ["failed"]
        assert end_of(second) is None, "it is placed again"


def test_a_folder_that_a_power_failure_left_is_removed_with_its_token_of_git(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / GIT).write_text("a token")
    with SharedProcesses(tmp_path, keep_warm=False) as first:
        assert not left.exists()
        begun(first, tmp_path, "a1")
        with SharedProcesses(tmp_path, keep_warm=False):
            assert list(tmp_path.glob(f"{PREFIX}*")), "its process runs"
