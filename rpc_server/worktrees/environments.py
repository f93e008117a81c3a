"""Environments of commits: the user's own, or one installed once for each set of manifests."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Literal, TypeVar

from evolverpc_common.build_cache import BUILD_S, FILES, VENV, BuildCache, BuiltEnvironment, refuse_links_out
from evolverpc_common.files import remove_tree
from evolverpc_common.node_package_managers import (
    MODULES,
    NodeInstall,
    installed_modules,
    node_install,
    package_folders,
)
from evolverpc_common.python_package_managers import (
    PRINT_IMPORT_PATHS,
    PythonInstall,
    find_uv,
    printed_paths,
    python_install,
    tool_variables,
    uv_variables,
)
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail, JailFactory
from rpc_server.program.launcher import find_interpreter, program_environment
from rpc_server.program.supervised_command import run_command
from rpc_server.settings import Settings
from rpc_server.worktrees.repository import UserRepository

Language = Literal["python", "node"]

T = TypeVar("T", PythonInstall, NodeInstall)


@dataclass(frozen=True)
class Manifest:
    """The tool that installs what a commit lists for one language, if it lists anything, and a digest of what it reads.

    `digest`: `""` if nothing is listed. `problem`: why it cannot be installed.
    """

    language: Language
    install: PythonInstall | NodeInstall | None = None
    digest: str = ""
    problem: str = ""


def manifests_of(repository: UserRepository, commit: str, objects: Path | None = None) -> dict[Language, Manifest]:
    """Return the manifests of a commit, which may be in `objects`, by language."""
    ids = repository.ids(commit, objects)

    def manifest(
        language: Language,
        choose: Callable[[str, Mapping[str, str], Mapping[str, bytes]], tuple[T | None, set[str]]],
    ) -> Manifest:
        documents: dict[str, bytes] = {}
        try:
            found, unread = choose(repository.prefix, ids, documents)
            while unread:
                documents |= repository.read_all(commit, unread, objects)
                found, unread = choose(repository.prefix, ids, documents)
        except ValueError as error:  # raised when it is installed, if it ever is
            return Manifest(language, None, hashlib.sha256(str(error).encode()).hexdigest(), str(error))
        return Manifest(language) if found is None else Manifest(language, found, found.digest)

    return {"python": manifest("python", python_install), "node": manifest("node", node_install)}


_VERSION_S = 30.0
_CACHE = "cache"
_CHECKOUT = f"{_CACHE}/program"

_Run = Callable[[Sequence[str], Path, Mapping[str, str]], Awaitable[str]]
"""Runs a command in a folder, with more variables, and returns the end of its output."""


async def install_into(
    folder: Path,
    manifest: Manifest,
    interpreter: Path,
    settings: Settings,
    check_out: Callable[[Path], None],
    jail: Jail | None = None,
) -> BuiltEnvironment:
    """Create `folder` and install into it, in a checkout.

    `check_out` writes the commit's files into a new folder. `jail`: the jail to run in, without a shared package cache,
    as installed code is untrusted.

    Raises:
        ProgramFailed: it cannot be installed; stage `environment`, and `log_tail` if a command failed.
    """
    install = manifest.install
    if install is None:
        raise _failed(manifest.problem)
    cache = folder / _CACHE
    env = program_environment(settings)
    if jail is not None:
        env |= {"UV_CACHE_DIR": str(cache / "uv"), "npm_config_cache": str(cache / "npm")}
        env |= {f"XDG_{kind}_HOME": str(cache / kind) for kind in ("CACHE", "DATA", "STATE")}

    async def check(paths: Iterable[str | Path]) -> None:
        try:
            await run_shielded(refuse_links_out, folder, paths)
        except ValueError as error:
            raise _failed(str(error)) from None

    async def run(command: Sequence[str], where: Path, variables: Mapping[str, str]) -> str:
        given, stage = {**env, **variables}, "environment"
        await check([*command, where, *variables.values()])
        return await run_command(command, folder=where, environment=given, timeout_s=BUILD_S, stage=stage, jail=jail)

    if isinstance(install, PythonInstall):
        await run_shielded(check_out, folder / _CHECKOUT)
        built = await _install_python(install, folder, interpreter, env, run)
    else:
        await run_shielded(check_out, folder / FILES)
        built = await _install_node(install, folder, run)
    modules = await run_shielded(lambda: [*installed_modules(folder / FILES)])
    await check([*built.places, *built.env.values(), *(each / ".bin" for each in modules)])
    await run_shielded(remove_tree, cache)
    return built


def node_version(settings: Settings) -> str:
    """Return the version of Node on the program's `PATH`, part of an environment's identity. Blocks.

    Raises:
        ProgramFailed: there is no Node, or it does not print a version; stage `environment`.
    """
    environment = program_environment(settings)
    node = shutil.which("node", path=environment.get("PATH"))
    if node is None:
        raise _failed("package.json changed, and there is no node to install for")
    try:
        completed = subprocess.run(  # noqa: S603  # the user's own Node
            [node, "--version"], env=environment, capture_output=True, text=True, check=True, timeout=_VERSION_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failed(f"{node} did not print its version: {error}") from None
    return completed.stdout.strip()


async def _install_python(
    install: PythonInstall, folder: Path, interpreter: Path, env: Mapping[str, str], run: _Run
) -> BuiltEnvironment:
    uv, venv = find_uv(), folder / VENV
    if uv is None:
        raise _failed(
            "what the program requires changed, and there is no uv to install it: "
            "run pip install '.[agent]' in the folder of evolverpc"
        )
    python = str(venv / "bin" / "python")
    variables = {**uv_variables(env), **tool_variables(venv, uv, env.get("PATH", os.defpath))}

    async def run_tool(command: list[str], where: Path) -> str:
        return await run(command, where, variables)

    await run_tool([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), str(venv)], folder)
    paths = await install.run(folder / _CHECKOUT, uv, python, run_tool)
    return BuiltEnvironment(python, (str(venv / "bin"),), (str(folder),), {"VIRTUAL_ENV": str(venv)}, paths)


async def _install_node(install: NodeInstall, folder: Path, run: _Run) -> BuiltEnvironment:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise _failed("package.json changed, and there is no npm to install from it")
    await install.run(folder / FILES, (npm,), node, folder / _CACHE, run)
    return BuiltEnvironment(mounts=(str(folder),))


def _failed(message: str) -> ProgramFailed:
    return ProgramFailed(message, stage="environment")


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
