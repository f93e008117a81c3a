"""Install what manifests list, with uv for Python and npm for Node: find uv, and prepare manifests and variables."""

import json
import re
import shutil
import tomllib
from collections.abc import Mapping

NPM_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")

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
