"""Each package's `__all__` is exactly what the package gives to the world."""

import importlib
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_every_public_member_and_nothing_else(name: str) -> None:
    package = importlib.import_module(name)
    listed = package.__all__
    assert len(set(listed)) == len(listed)
    ours = {
        member
        for member, value in vars(package).items()
        if not member.startswith("_") and getattr(value, "__module__", "").split(".")[0] == name
    }
    assert ours <= set(listed)
    for member in listed:
        assert not isinstance(getattr(package, member), ModuleType)
