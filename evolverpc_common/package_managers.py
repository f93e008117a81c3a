"""Find uv, and install what manifests of Node list, with npm or pnpm."""

import json
import posixpath
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from evolverpc_common.node_packages import MODULES, NODE_LOCKS, PACKAGE_JSON, PNPM_LOCK

NPM_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")

PNPM_VARIABLES = {"CI": "true"}
"""Variables of pnpm: without a terminal it would ask, and it would link to a store that is removed."""

_PNPM = re.compile(r"pnpm@(\d+\.\d+\.\d+[\w.-]*)(\+.*)?")
_LOCK_VERSION = re.compile(rb"^lockfileVersion:\s*['\"]?(\d+)\.", re.MULTILINE)
_PNPM_OF_LOCK = {b"6": "8", b"9": "10"}
"""The newest pnpm that reads a version of its lock and runs on Node 20."""

_UV_FOR_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
_SEPARATED_BY_COMMAS = {"UV_FIND_LINKS"}
"""pip separates entries by whitespace; so does uv, except here."""


def find_uv() -> str | None:
    """Return the path of the installed package uv, else of a uv on the PATH; None if there is none."""
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv")
    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv")


def uv_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables for those of pip, which uv does not read; variables of uv in `environ` come first."""
    found = {}
    for pip, uv in _UV_FOR_PIP.items():
        if pip in environ and uv not in environ:
            found[uv] = ("," if uv in _SEPARATED_BY_COMMAS else " ").join(environ[pip].split())
    return found


def without_npm_scripts(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return manifests without the scripts that npm would run (`prepare`): the packages' own files are not there.

    Raises:
        ValueError: a `package.json` cannot be read.
    """
    return {
        path: _without_scripts(path, content) if posixpath.basename(path) == PACKAGE_JSON else content
        for path, content in files.items()
    }


def _without_scripts(path: str, content: bytes) -> bytes:
    try:
        document = json.loads(content)
        document.pop("scripts", None)
    except (ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    return json.dumps(document, indent=2).encode()


def pnpm_lock(names: Iterable[str]) -> str | None:
    """Return the lock of pnpm among the paths of manifests; None if npm installs from them."""
    return next((name for name in names if posixpath.basename(name) == PNPM_LOCK), None)


def pnpm_package(files: Mapping[str, bytes]) -> str | None:
    """Return the package of npm that is the pnpm for these manifests, by path; None if npm installs from them.

    It is what `packageManager` beside the lock names, else one that reads the lock.

    Raises:
        ValueError: neither is the case; or `package.json` cannot be read.
    """
    lock = pnpm_lock(files)
    if lock is None:
        return None
    path = posixpath.join(posixpath.dirname(lock), PACKAGE_JSON)
    try:
        document = json.loads(files[path])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    named = _PNPM.fullmatch(str(document.get("packageManager"))) if isinstance(document, dict) else None
    if named is not None:
        return f"pnpm@{named[1]}"
    written = _LOCK_VERSION.search(files[lock])
    if written is None or written[1] not in _PNPM_OF_LOCK:
        raise ValueError(
            f'{lock} is of no version that is known here: name its pnpm in {path}, `"packageManager": "pnpm@VERSION"`'
        )
    return f"pnpm@{_PNPM_OF_LOCK[written[1]]}"


def node_commands(
    files: Mapping[str, bytes],
    folders: Sequence[str],
    top: str,
    npm: Sequence[str],
    scratch: Path,
    options: Sequence[str] = (),
) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield what is installed, the command that does it, with these options, and variables that it needs.

    `files`: the manifests below `top`, by path. `folders`: those below `top` to install in, the program's first. `npm`:
    the command npm. pnpm and its store are in `scratch`; it is refused if it needs a newer Node.

    Raises:
        ValueError: see `pnpm_package`.
    """
    pnpm = pnpm_package(files)
    if pnpm is not None:
        tool = scratch / "pnpm"
        yield pnpm, [*npm, "install", "--prefix", str(tool), "--engine-strict", *NPM_OPTIONS, pnpm], {}
        install = (str(tool / MODULES / ".bin" / "pnpm"), "install", "--frozen-lockfile", "--loglevel=error")
        where = ("--dir", posixpath.join(top, folders[0]), "--store-dir", str(scratch / "pnpm-store"))
        yield f"what {pnpm_lock(files)} lists", [*install, *where, *options], PNPM_VARIABLES
        return
    for folder in folders:
        locked = any(posixpath.join(folder, name) in files for name in NODE_LOCKS)
        command = ("ci" if locked else "install", "--prefix", posixpath.join(top, folder), *NPM_OPTIONS)
        yield f"what {posixpath.join(folder, PACKAGE_JSON)} lists", [*npm, *command, *options], {}
