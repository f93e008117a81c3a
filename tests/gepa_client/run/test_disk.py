"""Operating system errors that pause or fail a run."""

import errno
import os

import pytest

from gepa_client.run.failures import stop_for


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG])
def test_a_full_disk_pauses_a_run(number: int) -> None:
    stop = stop_for(OSError(number, os.strerror(number)))
    assert (stop.status, stop.reason.endswith("; make room, then resume")) == ("paused", True)


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionResetError("cut"), FileNotFoundError(2, "no", "x")])
def test_other_errors_fail_a_run_without_a_hint_about_the_disk(error: OSError) -> None:
    stop = stop_for(error, "on_best")
    assert stop.status == "failed"
    assert stop.reason.startswith(f"on_best failed: {type(error).__name__}: ")
    assert "make room" not in stop.reason
