"""Several sandboxes are closed, each completely, even if others fail."""

import pytest

from sandbox_runtime import SandboxError
from sandbox_runtime.backends.lifecycle import close_after_failure, close_all


class Closed:
    def __init__(self, error: str = "") -> None:
        self.error = error
        self.closed = False

    async def close(self) -> None:
        self.closed = True
        if self.error:
            raise SandboxError(self.error)


async def test_all_are_closed_and_the_first_failure_is_raised_with_the_number_of_failures() -> None:
    sandboxes = [Closed(), Closed("stuck"), Closed("stuck too"), Closed()]
    with pytest.raises(SandboxError, match=r"2 of 4 sandboxes could not be freed: stuck$"):
        await close_all(sandboxes)
    assert all(sandbox.closed for sandbox in sandboxes)


async def test_a_failed_close_after_another_failure_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    await close_after_failure(Closed("stuck"))
    assert "stuck" in caplog.text
