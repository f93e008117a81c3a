"""The modal package is imported only if its backend is chosen, and never inside an image."""

import subprocess
import sys

import pytest

from sandbox_runtime.backends.modal.runtime import ModalRuntime

PRINT_IMPORTED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}\n{PRINT_IMPORTED}"], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_modal_is_imported_only_with_its_runtime() -> None:
    assert "modal" not in imported("import sandbox_runtime, sandbox_runtime.backends.modal.image_setup")


async def test_a_runtime_that_was_not_entered_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="enter"):
        await ModalRuntime().found()
