"""A project that is installed editable in the user's Python: each tree imports its own files all the same."""

import os
import sys
from pathlib import Path

import pytest

from tests.rpc_server.mutations.project import Project
from tests.rpc_server.worktrees.worktree_project import FILES, Open, second

HELPER = "import parts\nANSWER = [parts.ANSWER, parts.__file__]\n"
FINDER = """
import importlib.util, sys

MAPPING = {"parts": %r}


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return importlib.util.spec_from_file_location(name, MAPPING[name] + "/__init__.py")


sys.meta_path.append(Finder)
"""


def project_of(place: Path, package: str) -> tuple[Project, str]:
    """One whose package is in the folder; and a commit that changes it, the user's folder being at the first again."""
    files = {**FILES, "helper.py": HELPER, f"{package}/__init__.py": "ANSWER = 1\n", ".gitignore": ".venv/\n"}
    project = Project(place, files)
    return project, second(project, {f"{package}/__init__.py": "ANSWER = 2\n"})


def virtual_environment(project: Project, **installed: str) -> Path:
    """Its interpreter; `installed` are files beside its packages, by name with `_` for the dot."""
    folder = project.folder / ".venv"
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (folder / "pyvenv.cfg").write_text(f"home = {Path(os.path.realpath(sys.executable)).parent}\n")
    for name, content in installed.items():
        stem, _, ending = name.rpartition("_")
        (packages / f"{stem}.{ending}").write_text(content)
    return folder / "bin" / "python"


@pytest.mark.parametrize(("package", "kind"), [("src/parts", "path"), ("libraries/one/parts", "finder")])
async def test_a_tree_imports_its_own_files_where_the_project_is_installed_editable(
    tmp_path: Path, opened: Open, package: str, kind: str
) -> None:
    project, other = project_of(tmp_path, package)
    place = project.folder / package
    if kind == "path":
        python = virtual_environment(project, __editable___parts_pth=f"{place.parent}\n")
    else:
        python = virtual_environment(
            project,
            __editable___parts_pth="import __editable___parts_finder\n",
            __editable___parts_finder_py=FINDER % str(place),
        )
    here = await opened(project, python=python)
    [one, _], [two, file] = [(await here.output(candidate))["answer"] for candidate in (here.seed, here.at(other))]
    assert (one, two) == (1, 2)
    assert Path(file).is_relative_to(here.state)
