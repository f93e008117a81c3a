"""Install what manifests list, with uv for Python, npm or pnpm for Node: find them, prepare manifests and variables."""

import json
import posixpath
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from evolverpc_common.node_packages import PACKAGE_JSON, PNPM_LOCK

NPM_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")

PNPM_VARIABLES = {"CI": "true"}
"""Variables of pnpm: without a terminal it would ask, and it would link to a store that is removed."""

_PNPM = re.compile(r"pnpm@(\d+\.\d+\.\d+[\w.-]*)(\+.*)?")
_LOCK_VERSION = re.compile(rb"^lockfileVersion:\s*['\"]?(\d+)\.", re.MULTILINE)
_PNPM_OF_LOCK = {b"6": "8", b"9": "10"}
"""The newest pnpm that reads a version of its lock and runs on Node 20."""

INCLUDED_REQUIREMENTS = re.compile(
    r"^(?P<option>[ \t]*(?:-r|-c|--requirement|--constraint))(?:[ \t]+|=|(?=\S))(?P<path>[^\s#]+)", re.MULTILINE
)
"""Matches a line of a requirements file that includes another file, by its `path`."""

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


def lists_dependencies(pyproject: bytes) -> bool:
    """Return whether a `pyproject.toml` has `project.dependencies`. Raises `ValueError` if it cannot be read."""
    try:
        project = tomllib.loads(pyproject.decode()).get("project", {})
    except (ValueError, RecursionError) as error:
        raise ValueError(f"pyproject.toml cannot be read: {error}") from None
    return isinstance(project, dict) and "dependencies" in project


def without_npm_scripts(package_json: bytes) -> bytes:
    """Return a `package.json` without the scripts that npm would run (`prepare`): the program's files are not there.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        document = json.loads(package_json)
        document.pop("scripts", None)
    except (ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"package.json cannot be read: {error}") from None
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


def fetch_pnpm(package: str, tool: str) -> tuple[str, ...]:
    """Return npm's arguments that install a pnpm into the folder `tool`; it is refused if it needs a newer Node."""
    return ("install", "--prefix", tool, "--engine-strict", *NPM_OPTIONS, package)


def install_with_pnpm(tool: str, folder: str, store: str) -> tuple[str, ...]:
    """Return the command that installs what the lock of a folder or its workspace lists, with a store of its own."""
    pnpm = str(Path(tool, "node_modules", ".bin", "pnpm"))
    return (pnpm, "install", "--frozen-lockfile", "--dir", folder, "--store-dir", store, "--loglevel=error")
