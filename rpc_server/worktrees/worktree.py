"""One worktree on disk: files, links, the user's build, and the settings that its program runs with."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from evolverpc_common.files import open_plain, plain_files
from evolverpc_common.settings.sources import SettingsError
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.launcher import find_interpreter, program_environment
from rpc_server.program.supervised_command import run_command
from rpc_server.settings import Settings
from rpc_server.worktrees.environments import Environment

_PATHS = ("program", "seed_candidate", "saved_program_json_path")
_WORKTREE_VARIABLES = ("PATH", "VIRTUAL_ENV")
"""Variables that the environment sets even if the settings set them; the settings' `PATH` is included."""

ARTIFACT_FILES = 1000
"""Files of the folder `artifacts` that are copied from a worktree."""

ARTIFACTS_BYTES = 64 * 2**20
"""Largest size of these files together."""


@dataclass(frozen=True)
class Worktree:
    """The files of one commit. `root`: the program's folder in `folder`, as the settings' `root` in the repository.

    `scratch`: its folder for temporary files. `jail`: the jail of everything that runs in it.
    """

    commit: str
    folder: Path
    root: Path
    scratch: Path
    environment: Environment
    jail: Jail | None = None


def worktree_settings(settings: Settings, worktree: Worktree) -> Settings:
    """Return the settings of a program that runs in the worktree; paths below the user's root lead into it.

    Git finds no repository from within the worktree, in particular not the user's.
    """
    found: dict[str, object] = {name: _moved(settings, getattr(settings, name), worktree) for name in _PATHS}
    if settings.command is not None:
        name, *words = settings.command
        found["command"] = (
            _executable(settings, name, worktree),
            *(str(_moved(settings, word, worktree)) for word in words),
        )
    else:
        venv = worktree.environment.venv
        found["python"] = find_interpreter(settings) if venv is None else venv / "bin" / "python"
    own = {"TMPDIR": str(worktree.scratch), "GIT_CEILING_DIRECTORIES": str(worktree.folder)}
    env = {**worktree.environment.variables, **own, **settings.env}
    env |= {
        name: worktree.environment.variables[name]
        for name in _WORKTREE_VARIABLES
        if name in worktree.environment.variables
    }
    if path := _python_path(settings, worktree):
        env["PYTHONPATH"] = path
    return settings.model_copy(update={**found, "root": worktree.root, "env": env})


def _python_path(settings: Settings, worktree: Worktree) -> str:
    """Return `PYTHONPATH` with the worktree's folders before installed or inherited ones."""
    files = worktree.folder / "files"
    own = [files / path for path in worktree.environment.import_paths] + [worktree.root / "src"]
    inherited = program_environment(settings).get("PYTHONPATH")
    found = [*(str(folder) for folder in dict.fromkeys(own) if folder.is_dir()), *([inherited] if inherited else [])]
    return os.pathsep.join(found)


def worktree_environment(settings: Settings, worktree: Worktree) -> dict[str, str]:
    """Return the environment of commands that run in the worktree."""
    return program_environment(worktree_settings(settings, worktree))


async def prepare_worktree(settings: Settings, files: Path, worktree: Worktree) -> None:
    """Link the settings' `links` and installed packages into the worktree, and run the user's build.

    `files`: the top of the commit's files. Local Node packages are prepared first, as npm does when it links them.

    Raises:
        ProgramFailed: a build fails; stage `build`.
    """
    for name in settings.links:
        _link(settings.root / name, worktree.root / name)
    builds: list[tuple[tuple[str, ...], Path]] = []
    if (modules := worktree.environment.node_packages) is not None:
        link = (sys.executable, "-I", "-m", "evolverpc_common.node_package_managers", str(modules), str(files))
        builds.append(((*link, *worktree.environment.node_folders), files))
    if settings.build_command is not None:
        builds.append((settings.build_command, worktree.root))
    for command, folder in builds:
        await run_command(
            command,
            folder=folder,
            environment=worktree_environment(settings, worktree),
            timeout_s=settings.build_timeout_s,
            stage="build",
            jail=worktree.jail,
        )


def check_links(settings: Settings, tracked: list[str], prefix: str) -> None:
    """Refuse `links` that cannot be made, before any worktree is created.

    Raises:
        SettingsError: one does not exist, is outside `root`, or is part of the commit.
    """
    for name in settings.links:
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise SettingsError(f"`links`: {name!r} is not a path below {settings.root}")
        if not os.path.lexists(settings.root / path):
            raise SettingsError(f"`links`: there is no {settings.root / path}")
        inside = (Path(prefix) / path).as_posix()
        if any(file == inside or file.startswith(f"{inside}/") for file in tracked):
            raise SettingsError(f"`links`: {name} is in the repository, so every worktree has it anyway")


def _link(target: Path, place: Path) -> None:
    if os.path.lexists(place):
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target, target_is_directory=target.is_dir())
    except OSError as error:
        raise ProgramFailed(
            f"cannot link {place.name} into the worktree: {error.strerror}", stage="environment"
        ) from None


def copy_saved_program(settings: Settings, worktree: Worktree) -> tuple[Path, Path] | None:
    """Copy the program saved by `finalize` to the user's path; return both paths, None if not copied."""
    if settings.saved_program_json_path is None:
        return None
    written = worktree.root / str(_moved(settings, settings.saved_program_json_path, worktree))
    place = settings.root / settings.saved_program_json_path
    real, top = Path(os.path.realpath(written)), Path(os.path.realpath(worktree.folder))
    if not real.is_file() or not real.is_relative_to(top):
        return None  # a link could lead to a file that the program may not read
    if place.exists() and real.samefile(place):
        return None
    place.parent.mkdir(parents=True, exist_ok=True)
    with open_plain(top, real.relative_to(top)) as source, place.open("wb") as target:
        shutil.copyfileobj(source, target)
    return written, place


def copy_artifacts(settings: Settings, worktree: Worktree) -> str | None:
    """Copy the files of the folder `artifacts` that `finalize` wrote to the user's. Blocks.

    Return a sentence about what was left out because of `ARTIFACT_FILES` or `ARTIFACTS_BYTES`; None if nothing was. No
    link is followed on either side, as the program may still run and put one in place of a file or a folder.
    """
    if settings.artifacts is None:
        return None
    written = worktree.root / settings.artifacts
    if not Path(os.path.realpath(written)).is_relative_to(os.path.realpath(worktree.folder)):
        return None
    home = Path(os.path.realpath(settings.root / settings.artifacts))
    left = ARTIFACTS_BYTES
    for number, (file, content) in enumerate(plain_files(written)):
        size = os.fstat(content.fileno()).st_size
        if number == ARTIFACT_FILES or size > left:
            most = f"{ARTIFACT_FILES:,} files and {ARTIFACTS_BYTES >> 20} MB"
            return f"not copied from the program's artifacts: {file} and what follows it, beyond {most}"
        left -= size
        place = home / file
        if not Path(os.path.realpath(place.parent)).is_relative_to(home):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        with place.open("wb") as copy:
            _copy_bytes(content, copy, size)
    return None


def _copy_bytes(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy at most `size` bytes, as the program may still write."""
    while size > 0 and (part := source.read(min(size, 2**20))):
        target.write(part)
        size -= len(part)


def _executable(settings: Settings, name: str, worktree: Worktree) -> str:
    """Return a command's first word; if it is not a file of the commit, it is the user's (a Python, for instance)."""
    if os.sep not in name:
        return name
    own = Path(os.path.normpath(settings.root.absolute() / name))
    in_project = settings.root.absolute() / ".venv"
    if worktree.environment.venv is not None and own.is_relative_to(in_project):
        return str(worktree.environment.venv / own.relative_to(in_project))
    moved = Path(str(_moved(settings, str(own), worktree)))
    return str(own if own.exists() and not os.path.lexists(moved) else moved)


def _moved(settings: Settings, value: object, worktree: Worktree) -> object:
    """Return a path below the user's root as its path in the worktree; anything else unchanged."""
    root = settings.root.absolute()
    if isinstance(value, str | Path) and os.path.isabs(value):  # noqa: PTH117  # a word may be no path at all
        path = Path(os.path.normpath(value))
        for folder in (root, root.resolve()):
            if path.is_relative_to(folder):
                moved = worktree.root / path.relative_to(folder)
                return moved if isinstance(value, Path) else str(moved)
    return value
