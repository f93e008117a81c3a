"""A sandbox that cannot be freed."""

import pytest

from sandbox_runtime import SandboxError
from sandbox_runtime.runtime.sandbox import end_after_failure


class Stuck:
    async def close(self) -> None:
        raise SandboxError("stuck")


async def test_a_failed_close_after_another_failure_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    await end_after_failure(Stuck().close())
    assert "stuck" in caplog.text
