"""What a program is given to run in its tree: settings, environment, links, what the user's build makes."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from rpc_server.settings import Settings
from rpc_server.worktrees import worktree
from rpc_server.worktrees.environments import Environment
from rpc_server.worktrees.server_folder import ServerFolder
from rpc_server.worktrees.worktree import Worktree, copy_artifacts, copy_saved_program, worktree_settings
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.worktrees.worktree_project import FILES, Open, second


def in_tree(root: Path, environment: Environment | None = None, **given: Any) -> tuple[Settings, Worktree]:
    """The settings of a project in `root` as they are in a tree of it."""
    folder = root.parent / "tree"
    (folder / "files" / "src").mkdir(parents=True)
    for name in ("app.py", "run.sh"):
        (folder / "files" / name).touch()
        (root / name).touch()
    variables = {"PATH": "/built/bin:/usr/bin"}
    tree = Worktree("c", folder, folder / "files", folder / "scratch", environment or Environment(variables=variables))
    return worktree_settings(Settings(root=root, trees=True, **given), tree), tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "root" / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / "root"


def test_paths_below_the_users_root_lead_into_the_tree(root: Path) -> None:
    env = {"PATH": "x", "PYTHONPATH": "/inherited"}
    found, tree = in_tree(root, program=str(root / "app.py"), seed_candidate=root / "seed.json", env=env)
    assert (found.root, found.program) == (tree.root, str(tree.root / "app.py"))
    assert found.seed_candidate == tree.root / "seed.json"
    assert found.python == root / ".venv/bin/python"
    assert found.env["PATH"] == "/built/bin:/usr/bin"
    assert found.env["PYTHONPATH"] == f"{tree.root}/src:/inherited"
    assert found.env["TMPDIR"] == str(tree.scratch)


@pytest.mark.parametrize(("absolute", "venv"), [(True, None), (False, None), (False, Path("/built"))])
def test_a_commands_files_are_the_trees_its_interpreter_is_not(root: Path, absolute: bool, venv: Path | None) -> None:
    start = f"{root}/" if absolute else ""
    environment = Environment(venv, variables={"PATH": "/usr/bin"})
    found, tree = in_tree(root, environment, command=(f"{start}.venv/bin/python", f"{start}app.py", "--x"))
    assert found.command is not None
    assert found.command[0] == str((venv or root / ".venv") / "bin/python")
    assert Path(tree.root, found.command[1]) == tree.root / "app.py"


async def test_links_lead_to_the_users_own_files_and_the_build_runs_in_each_tree(
    project: Project, opened: Open
) -> None:
    (project.folder / "model.dat").write_text("weights")
    here = await opened(
        project, links=("model.dat",), build_command=("sh", "-c", "cat *.dat && pwd > built.txt; git status || true")
    )
    messages = await here.output(here.seed)
    assert {"model.dat", "built.txt"} <= set(messages["files"])
    tree = Path(messages["cwd"])
    assert (tree / "model.dat").samefile(project.folder / "model.dat")
    assert (tree / "built.txt").read_text() == f"{tree}\n"


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_a_local_node_package_is_the_trees_and_is_prepared_in_it(tmp_path: Path, opened: Open) -> None:
    package = {"name": "shared", "version": "1.0.0", "main": "made.js", "scripts": {"prepare": "cp word.js made.js"}}
    files = {
        "package.json": '{"name": "top", "dependencies": {}}',
        "shared/package.json": json.dumps(package),
        "shared/word.js": "module.exports = 'before'",
        ".gitignore": "node_modules/\n*.txt\nmade.js\n",
    }
    project = Project(tmp_path, {**FILES, **files})
    (project.folder / "node_modules").mkdir()
    (project.folder / "node_modules/shared").symlink_to("../shared")
    after = {
        "shared/word.js": "module.exports = 'after'",
        "package.json": '{"name": "top", "dependencies": {"shared": "file:./shared"}}',
    }
    other = second(project, after)
    here = await opened(project, build_command=("sh", "-c", "node -p 'require(\"shared\")' > built.txt"))
    for commit, word in ((here.seed, "before"), (here.at(other), "after")):
        tree = Path((await here.output(commit))["cwd"])
        assert (tree / "built.txt").read_text() == f"{word}\n"
    assert not (project.folder / "shared/made.js").exists()


async def test_a_build_that_fails_is_the_commits_own_fault(project: Project, opened: Open) -> None:
    other = second(project, {"broken.txt": ""})
    here = await opened(project, build_command=("sh", "-c", "test ! -e broken.txt || { echo it is broken; exit 3; }"))
    (result,) = await here.results(here.at(other))
    assert result["status"] == "program_error"
    assert "status 3" in result["error"]["message"]
    assert "it is broken" in result["error"]["log"]
    assert here.folders == 1


@pytest.mark.parametrize(
    ("link", "printed"), [("app.py", "every worktree has it"), ("../x", "not a path below"), ("nowhere", "there is no")]
)
async def test_links_that_cannot_be_made_are_refused_at_the_start(
    project: Project, opened: Open, link: str, printed: str
) -> None:
    with pytest.raises(SettingsError, match=printed):
        await opened(project, links=(link,))


def test_the_state_of_a_server_that_is_gone_is_swept_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    (tmp_path / "servers/dead/trees/x/files").mkdir(parents=True)
    (tmp_path / "servers/dead.lock").touch()
    living, later = ServerFolder(tmp_path), ServerFolder(tmp_path)
    living.open()
    later.open()
    later.sweep()
    assert not later.only_server
    assert {each for each in (tmp_path / "servers").iterdir() if each.is_dir()} == {living.folder, later.folder}
    living.close()
    later.sweep()
    assert later.only_server
    later.close()
    assert list((tmp_path / "servers").iterdir()) == []


def test_artifacts_are_copied_and_no_link_is_followed_on_either_side(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "made").mkdir()
    (root / "made" / "file").symlink_to(outside / "secret")
    (root / "made" / "folder").symlink_to(outside)
    _, tree = in_tree(root, program="app.py")
    written = tree.root / "made"
    for name in ("file", "folder/secret", "other/kept"):
        (written / name).parent.mkdir(parents=True, exist_ok=True)
        (written / name).write_text("of the program")
    (written / "link").symlink_to(outside / "secret")
    os.mkfifo(written / "pipe")
    copy_artifacts(Settings(root=root, program="app.py", trees=True, artifacts=Path("made")), tree)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "secret"}
    copied = {path.relative_to(root / "made").as_posix() for path in (root / "made").rglob("*") if path.is_file()}
    assert copied == {"file", "other/kept"}
    assert (root / "made" / "file").read_text() == "of the program"


def test_a_saved_program_that_links_out_of_the_tree_is_not_copied(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    _, tree = in_tree(root, program="app.py")
    dspy = {"program": "app.Program", "kind": "dspy", "metric": "app.metric", "saved_program_json_path": "best.json"}
    settings = Settings.model_validate({"root": root, "trees": True, **dspy})
    absolute = settings.model_copy(update={"saved_program_json_path": root / "best.json"})
    assert worktree_settings(absolute, tree).saved_program_json_path == tree.root / "best.json"
    (tree.root / "best.json").symlink_to(tmp_path / "secret")
    assert copy_saved_program(settings, tree) is None
    (tree.root / "best.json").unlink()
    (tree.root / "best.json").write_text("{}")
    assert copy_saved_program(settings, tree) == (tree.root / "best.json", root / "best.json")
    assert (root / "best.json").read_text() == "{}"


def test_artifacts_beyond_the_largest_size_are_left_out_and_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree, "ARTIFACTS_BYTES", 2**20)
    _, tree = in_tree(root, program="app.py")
    (tree.root / "made").mkdir()
    for name, size in (("a", 2**19), ("b", 2**20), ("c", 1)):
        (tree.root / "made" / name).write_bytes(b"x" * size)
    left_out = copy_artifacts(Settings(root=root, program="app.py", trees=True, artifacts=Path("made")), tree)
    assert left_out == "not copied from the program's artifacts: b and what follows it, beyond 1,000 files and 1 MB"
    assert [path.name for path in (root / "made").iterdir()] == ["a"]
