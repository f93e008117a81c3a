"""Environments of commits: the user's own, or one built once for each set of manifests."""

import hashlib
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath

from evolverpc_common.build_cache import FILES, BuildCache, BuiltEnvironment
from evolverpc_common.node_tools import MODULES, package_folders
from evolverpc_common.python_tools import PRINT_IMPORT_PATHS, printed_paths
from evolverpc_common.shielded import run_shielded
from rpc_server.jail.jail import Jail, JailFactory
from rpc_server.program.launcher import find_interpreter, program_environment
from rpc_server.settings import Settings
from rpc_server.worktrees.dependencies import Manifest, install_into, manifests_of, node_version
from rpc_server.worktrees.repository import UserRepository


def import_paths(settings: Settings, interpreter: Path, top: Path, jail: Jail | None) -> tuple[str, ...]:
    """Return the folders that Python imports from, relative to the repository's `top`, in order.

    Empty if the interpreter cannot run; the program's start reports why.
    """
    command: tuple[str, ...] = (str(interpreter), "-B", "-c", PRINT_IMPORT_PATHS, str(top))
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
        return ()
    return tuple(printed_paths(os.fsdecode(completed.stdout)))


def _holding_files(folders: Iterable[str], paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of these folders that hold a file of a commit, in order; `""` is the top.

    What is left out: an environment inside the repository, and what a build has printed but no commit has.
    """
    holding = {str(folder) for path in paths for folder in PurePath(path).parents}
    return tuple(dict.fromkeys("" if folder == os.curdir else folder for folder in folders if folder in holding))


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
    manifests and Python's import paths.
    """

    def __init__(
        self, repository: UserRepository, settings: Settings, seed: str, cache: Path, jails: JailFactory | None = None
    ) -> None:
        self._repository = repository
        self._jails = jails
        self._settings = settings
        self._cache = BuildCache(cache / "environments")
        self._node: str | None = None
        self._interpreter = find_interpreter(settings)
        self._seed = manifests_of(repository, seed)
        self._import_paths = import_paths(
            settings, self._interpreter, repository.top, None if jails is None else jails.jail()
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
        import_paths = self._import_paths
        if self._differs_from_seed(python):
            built = await self._build(python, commit, objects)
            import_paths = (*built.import_paths, *import_paths)
            venv = Path(built.env["VIRTUAL_ENV"])
            variables |= built.env
            found += map(Path, built.path)
        elif self._settings.command is None and (self._interpreter.parents[1] / "pyvenv.cfg").is_file():
            found.append(self._interpreter.parent)
        differs = self._differs_from_seed(node)
        packages = (
            Path((await self._build(node, commit, objects)).mounts[0], FILES) if differs else self._repository.top
        )
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
        importable = _holding_files(import_paths, paths)
        return Environment(venv, packages if folders else None, folders, variables, importable)

    def _differs_from_seed(self, manifest: Manifest) -> bool:
        return bool(manifest.digest) and manifest.digest != self._seed[manifest.language].digest

    async def _build(self, manifest: Manifest, commit: str, objects: Path | None) -> BuiltEnvironment:
        """Return what was installed for the manifest of this repository, by this server or another.

        Build scripts of one repository may not change what another one runs.
        """
        runtime = str(self._interpreter) if manifest.language == "python" else await run_shielded(self._node_version)
        what = f"{manifest.language} {runtime} {manifest.digest} {self._repository.git_dir}"
        digest = hashlib.sha256(os.fsencode(what)).hexdigest()[:24]

        async def build(folder: Path) -> BuiltEnvironment:
            jail = None if self._jails is None else self._jails.jail(folder)
            check_out = partial(self._repository.check_out, commit, objects=objects)
            return await install_into(folder, manifest, self._interpreter, self._settings, check_out, jail)

        return await self._cache.build_once(digest, build)

    def _node_version(self) -> str:
        if self._node is None:
            self._node = node_version(self._settings)
        return self._node
