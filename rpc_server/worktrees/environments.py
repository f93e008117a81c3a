"""Environments of commits: the user's own, or one built once for each set of manifests."""

import contextlib
import hashlib
import json
import logging
import math
import os
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from evolverpc_common.files import lock_if_free, locked, remove_tree
from evolverpc_common.node_packages import MODULES, package_folders
from evolverpc_common.shielded import run_shielded
from rpc_server.jail.jail import Jail, JailFactory
from rpc_server.program.launcher import find_interpreter, program_environment
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.dependencies import VENV, Manifest, install, installed_packages, manifests_of, node_version
from rpc_server.worktrees.repository import UserRepository

# What setuptools installs editable may be on no path: a finder knows where each package is.
_PRINT_IMPORT_PATHS = """
import json, os, sys
finders = [module for name, module in list(sys.modules.items()) if name.startswith("__editable__")]
places = [place for finder in finders for place in getattr(finder, "MAPPING", {}).values()]
print()
print(json.dumps([path for path in sys.path if path] + [os.path.dirname(place) for place in places]))
"""


def import_paths(
    settings: Settings, interpreter: Path, top: Path, tracked: Iterable[str], jail: Jail | None
) -> tuple[str, ...]:
    """Return the folders that Python imports from, relative to the repository's `top`, in order; `""` is `top`.

    Only folders that hold files of `tracked`, so that an environment inside the repository is left out. Empty if the
    interpreter cannot run; the program's start reports why.
    """
    holding = {str(folder) for path in tracked for folder in PurePath(path).parents}
    reported = _python_import_paths(settings, interpreter, jail)
    inside = (os.path.relpath(os.path.realpath(path), os.path.realpath(top)) for path in reported)
    return tuple(dict.fromkeys("" if path == os.curdir else path for path in inside if path in holding))


def _python_import_paths(settings: Settings, interpreter: Path, jail: Jail | None) -> list[str]:
    command: tuple[str, ...] = (str(interpreter), "-B", "-c", _PRINT_IMPORT_PATHS)
    if jail is not None:
        command = jail.wrap(command, folder=settings.root, environment=program_environment(settings))
    try:
        completed = subprocess.run(  # noqa: S603  # the user's interpreter, which is to run the program
            command,
            cwd=settings.root,
            env=program_environment(settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=settings.start_timeout_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[str] = json.loads(completed.stdout.splitlines()[-1])
    return found


logger = logging.getLogger(__name__)

KEPT_DAYS = 30
"""Days after which an unused environment is removed."""

_SWEPT_AT_ONCE = 10
_COMPLETE = ".complete"
"""A file that exists once everything is installed; its modification time is that of the last use."""


@dataclass(frozen=True)
class Environment:
    """The environment that a commit's program runs in.

    `venv`: the Python environment built for it; None for the user's own. `node_packages`: a folder laid out as the
    repository, with the `node_modules` of `node_folders`, which are linked into the worktree. `variables`: for the
    program. `import_paths`: folders of the repository that Python imports from.
    """

    venv: Path | None = None
    node_packages: Path | None = None
    node_folders: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    import_paths: tuple[str, ...] = ()


class CommitEnvironments:
    """Environments of one repository's commits, below `cache`, shared by all servers of this user.

    A commit with the same manifests as `seed` gets the user's own environment. Blocks while it reads the seed's
    manifests and Python's import paths. Environments unused for `KEPT_DAYS` are removed.
    """

    def __init__(
        self, repository: UserRepository, settings: Settings, seed: str, cache: Path, jails: JailFactory | None = None
    ) -> None:
        self._repository = repository
        self._jails = jails
        self._settings = settings
        self._folder = cache / "environments"
        self._node: str | None = None
        self._interpreter = find_interpreter(settings).path
        self._seed = manifests_of(repository, seed)
        self._import_paths = import_paths(
            settings, self._interpreter, repository.top, repository.files(seed), None if jails is None else jails.jail()
        )

    async def of(self, commit: str, objects: Path | None = None) -> Environment:
        """Return the environment of a commit, which may be in `objects`; build it if there is none yet.

        Raises:
            ProgramFailed: it cannot be built; stage `environment`.
        """
        manifests = await run_shielded(manifests_of, self._repository, commit, objects)
        node, python = manifests["node"], manifests["python"]
        variables: dict[str, str] = {}
        found: list[Path] = []
        venv: Path | None = None
        if self._differs_from_seed(python):
            venv = (await self._build(python)) / VENV
            variables["VIRTUAL_ENV"] = str(venv)
            found.append(venv / "bin")
        elif self._settings.command is None and (self._interpreter.parents[1] / "pyvenv.cfg").is_file():
            found.append(self._interpreter.parent)
        differs = self._differs_from_seed(node)
        packages = installed_packages(await self._build(node)) if differs else self._repository.top
        prefix = PurePath(self._repository.prefix)
        own = tuple("" if folder == PurePath() else str(folder) for folder in (prefix, *prefix.parents))
        paths = await run_shielded(self._repository.files, commit, objects)
        folders = tuple(
            folder
            for folder in dict.fromkeys((*own, *package_folders(paths)))
            if (packages / folder / MODULES).is_dir()
        )
        found += [packages / folder / MODULES / ".bin" for folder in own if folder in folders]
        inherited = program_environment(self._settings).get("PATH", os.defpath)
        variables["PATH"] = os.pathsep.join([*map(str, found), inherited])
        return Environment(venv, packages if folders else None, folders, variables, self._import_paths)

    def _differs_from_seed(self, manifest: Manifest) -> bool:
        return bool(manifest.files) and manifest.digest != self._seed[manifest.language].digest

    async def _build(self, manifest: Manifest) -> Path:
        """Return the folder installed for the manifest, by this server or another."""
        runtime = str(self._interpreter) if manifest.language == "python" else await run_shielded(self._node_version)
        what = f"{manifest.language} {runtime} {manifest.digest}"
        folder = self._folder / hashlib.sha256(os.fsencode(what)).hexdigest()[:24]
        self._folder.mkdir(parents=True, exist_ok=True)
        async with locked(_lock_of(folder)):
            if not _is_complete(folder):
                await run_shielded(remove_tree, folder)  # incomplete, or its Python is gone
                try:
                    jail = None if self._jails is None else self._jails.jail(folder)
                    await install(manifest, folder, self._interpreter, self._settings, jail)
                except BaseException:
                    await run_shielded(remove_tree, folder)
                    raise
                (folder / _COMPLETE).unlink(missing_ok=True)  # installed code may have made it a link
            (folder / _COMPLETE).touch()  # it is in use
        return folder

    def sweep(self) -> None:
        """Remove unused environments, at most `_SWEPT_AT_ONCE`. Blocks."""
        unused = time.time() - KEPT_DAYS * 24 * 3600
        found = [folder for folder in self._folder.glob("*/") if _last_used(folder) < unused]
        for folder in found[:_SWEPT_AT_ONCE]:
            _remove_unless_used(folder, unused)

    def _node_version(self) -> str:
        if self._node is None:
            self._node = node_version(self._settings)
        return self._node


def _is_complete(folder: Path) -> bool:
    python = folder / VENV / "bin" / "python"
    return (folder / _COMPLETE).exists() and (not python.is_symlink() or python.exists())


def _lock_of(folder: Path) -> Path:
    return folder.with_suffix(".lock")


def _remove_unless_used(folder: Path, unused: float) -> None:
    """Remove an environment that is still unused since then (a time as of `time.time`), unless a server uses it."""
    with lock_if_free(_lock_of(folder)) as held:
        if not held or _last_used(folder) >= unused:
            return
        try:
            (folder / _COMPLETE).unlink(missing_ok=True)  # first, so that an incomplete environment is never used
            remove_tree(folder)
        except OSError as error:
            logger.warning("cannot remove %s: %s", folder, error)


def _last_used(folder: Path) -> float:
    """Return the time of last use as of `time.time`, of creation if unfinished; infinity if it is gone."""
    for path in (folder / _COMPLETE, folder):
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime
    return math.inf
