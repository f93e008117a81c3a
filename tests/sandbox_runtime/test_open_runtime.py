"""A backend is imported when it is chosen, and never before."""

import subprocess
import sys

import pytest

from sandbox_runtime import RuntimeUnavailable
from sandbox_runtime.backends import RUNTIMES, open_runtime

BACKENDS = f"[kind for kind in {RUNTIMES!r} if f'sandbox_runtime.backends.{{kind}}' in sys.modules]"


def test_only_the_chosen_backend_is_imported() -> None:
    kind = "process"
    code = f"import sys; from sandbox_runtime.backends import open_runtime; assert not {BACKENDS}\n"
    code += f"assert open_runtime({kind!r}).name == {kind!r}; assert {BACKENDS} == [{kind!r}]"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_the_modal_package_the_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sandbox_runtime.backends.modal.backend", raising=False)
    monkeypatch.setitem(sys.modules, "modal", None)
    with pytest.raises(RuntimeUnavailable, match=r"pip install '\.\[modal\]'"):
        open_runtime("modal")
