"""A folder with the program of `data/`, in which the tests run; the drivers of their own process are forks."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from gepa_client.run import supervisor
from tests.support.forked_client import ForkServer

DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def _forked_drivers(monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> None:
    monkeypatch.setattr(supervisor, "subprocess", fork_server.forking_subprocess())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `units.py` in it; no setting of the user's environment is in force."""
    shutil.copy(DATA / "units.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEPA_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def units(folder: Path) -> ModuleType:
    """The functions of `units.py`, imported here."""
    spec = importlib.util.spec_from_file_location("units", folder / "units.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
