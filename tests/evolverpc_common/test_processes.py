"""Whether a process is certainly gone."""

import os
import subprocess
from pathlib import Path

from evolverpc_common.processes import ProcessIdentity, started_at

ME = ProcessIdentity.this_process()


def test_a_process_that_ended_is_gone_before_it_is_waited_for() -> None:
    child = subprocess.Popen(["sleep", "60"])
    started = started_at(child.pid)
    owner = ME.model_copy(update={"pid": child.pid, "started": started})
    try:
        assert started is not None
        assert not owner.is_gone() and str(child.pid) in str(owner)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{child.pid}").exists()
        assert owner.is_gone()
    finally:
        child.kill()
        child.wait()
    assert owner.is_gone()


def test_a_pid_that_is_another_process_by_now_or_that_was_there_before_this_machine_started_is_gone() -> None:
    assert ME.model_copy(update={"started": ME.started - 1}).is_gone()
    assert ME.model_copy(update={"boot_id": "before"}).is_gone()


def test_of_another_machine_or_container_nothing_is_certain() -> None:
    assert not ME.model_copy(update={"boot_id": "theirs", "hostname": "theirs"}).is_gone()
    assert not ME.model_copy(update={"pid_namespace": "pid:[1]", "started": 1}).is_gone()
