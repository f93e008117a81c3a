"""The modal package is imported only if its backend is chosen, and never inside an image."""

import subprocess
import sys

import pytest

from sandbox_runtime.backends.modal import guard
from sandbox_runtime.backends.modal.runtime import ModalRuntime

PRINT_IMPORTED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}\n{PRINT_IMPORTED}"], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["sandbox_runtime", "sandbox_runtime.backends.modal.image_setup"])
def test_modal_is_imported_only_with_its_runtime(module: str) -> None:
    assert "modal" not in imported(f"import {module}")


def test_the_guard_imports_only_the_standard_library() -> None:
    source = f"import runpy; runpy.run_path({guard.__file__!r})"
    assert imported(source) <= {"__main__", *sys.stdlib_module_names, "sitecustomize", "_virtualenv"} | imported("pass")


async def test_a_runtime_that_was_not_entered_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="enter"):
        await ModalRuntime().found()
