"""Install a Python program with its repository's own tool, in a checkout: which tool that is, what it reads, and uv."""

import hashlib
import posixpath
import shutil
import sys
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

REQUIREMENTS = "requirements.txt"
PYPROJECT = "pyproject.toml"
PYTHON_VERSION = ".python-version"

_TOOLS = {
    "uv.lock": ("uv", "sync", "--frozen", "--quiet", "--active"),
    "poetry.lock": ("poetry", "install", "--no-interaction"),
    "pdm.lock": ("pdm", "--non-interactive", "sync"),
}
"""Locks, the first of which decides in a folder, and the command that is run there."""

_INSTALLED_WITH = {"pdm": ("--with", "hishel<2")}
"""Options of `uv tool run` for a tool that does not run with the newest packages that its release allows."""

_UNKNOWN = ("Pipfile.lock", "Pipfile", "environment.yml", "environment.yaml")
_READ = {
    PYPROJECT,
    PYTHON_VERSION,
    *_TOOLS,
    *("setup.py", "setup.cfg", "hatch_build.py", "uv.toml", "poetry.toml", "pdm.toml"),
}
"""Files that these tools and build backends read, in any folder of the repository."""

TOOL_VARIABLES = {
    "UV_PYTHON_DOWNLOADS": "never",
    "PDM_IGNORE_SAVED_PYTHON": "1",
    "POETRY_KEYRING_ENABLED": "false",
}
"""Variables of all tools, with `VIRTUAL_ENV`, the environment that they install into."""

_UV_FOR_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
_SEPARATED_BY_COMMAS = {"UV_FIND_LINKS"}
"""pip separates entries by whitespace; so does uv, except here."""

_LINK_COPIES = """
import importlib.metadata, json, os, subprocess, sys, urllib.parse, urllib.request
top, *install = sys.argv[1:]
copied = []
for found in importlib.metadata.distributions():
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if "dir_info" in origin and not origin["dir_info"].get("editable"):
        folder = urllib.request.url2pathname(urllib.parse.urlsplit(origin["url"]).path)
        if os.path.realpath(folder).startswith(os.path.realpath(top) + os.sep):
            copied += ["--editable", folder]
if copied:
    sys.exit(subprocess.call([*install, *copied]))
"""
"""Installs packages of the repository again, as links, that a tool installed as copies (see PEP 610)."""

PRINT_IMPORT_PATHS = """
import os, sys
top = os.path.realpath(sys.argv[1])
finders = [module for name, module in list(sys.modules.items()) if name.startswith("__editable__")]
places = [place for finder in finders for place in getattr(finder, "MAPPING", {}).values()]
paths = [path for path in sys.path if path] + [os.path.dirname(place) for place in places]
found = dict.fromkeys(os.path.relpath(os.path.realpath(path), top) for path in paths)
print()
print(":".join(path for path in found if path.split(os.sep)[0] != ".."))
"""
"""Prints the folders below another that Python imports from, for `printed_paths`.

What setuptools links may be on no path: a finder knows its place.
"""


def printed_paths(printed: str) -> list[str]:
    """Return the folders that `PRINT_IMPORT_PATHS` printed, relative to that other and below it.

    A build can print anything: absolute paths and those with `..` are dropped.
    """
    paths = printed.strip("\n").rpartition("\n")[2].split(":")
    return [path for path in paths if path and not path.startswith("/") and ".." not in path.split("/")]


@dataclass(frozen=True)
class PythonInstall:
    """What installs a program: `command`, run in `folder` (from the repository's top), and the file that decided it.

    `digest`: of all files that the command reads. `unused`: paths of other tools' files beside that one.
    """

    folder: str
    command: tuple[str, ...]
    decided_by: str
    digest: str
    unused: tuple[str, ...] = ()

    async def run(
        self,
        top: Path,
        uv: str,
        python: str,
        run: Callable[[list[str], Path], Awaitable[str]],
    ) -> tuple[str, ...]:
        """Install into the environment of `python` what the checkout in `top` needs.

        Packages of the repository are linked. Return the folders below `top` that Python then imports from. `run` runs
        a command in a folder and returns its output; what it raises is raised.
        """
        name, *words = self.command
        ours = str(Path(sys.base_prefix) / "bin" / "python3")
        other = [uv, "tool", "run", "--no-config", "--python", ours, *_INSTALLED_WITH.get(name, ()), name, *words]
        await run([uv, *words, "--python", python] if name == "uv" else other, top / self.folder)
        again = (uv, "pip", "install", "--quiet", "--no-deps", "--python", python)
        await run([python, "-I", "-c", _LINK_COPIES, str(top), *again], top)
        return tuple(printed_paths(await run([python, "-I", "-c", PRINT_IMPORT_PATHS, str(top)], top)))


def python_install(
    folder: str, ids: Mapping[str, str], documents: Mapping[str, bytes]
) -> tuple[PythonInstall | None, set[str]]:
    """Return what installs the program in `folder`: a file there decides, else one in the nearest folder above it.

    Also return the paths of files that must be read first; repeat with them in `documents` until there are none.
    `ids`: the ids of the contents of the repository's files, by path.

    Raises:
        ValueError: the files are of tools that are not run here, or cannot be read; the text names them.
    """
    above = folders_above(folder)
    wanted = {posixpath.join(where, name) for where in above for name in (PYPROJECT, REQUIREMENTS)}
    wanted |= _named(ids, (text for path, text in documents.items() if posixpath.basename(path) != PYPROJECT))
    if unread := (wanted & ids.keys()) - documents.keys():
        return None, unread
    for number, where in enumerate(above):
        choices = [(path, command) for path, command in _choices(above[number:], ids, documents) if path in ids]
        unknown = [path for name in _UNKNOWN if (path := posixpath.join(where, name)) in ids]
        if choices:
            (decided, command), *others = choices
            read = {path for path in ids if posixpath.basename(path) in _READ or path.endswith((".whl", ".tar.gz"))}
            read |= documents.keys() | _named(ids, documents.values())
            unused = (*(path for path, _ in others if posixpath.basename(path) != PYPROJECT), *unknown)
            return PythonInstall(where, command, decided, content_digest(ids, read), unused), set()
        if unknown:
            raise ValueError(
                f"{unknown[0]} is of a tool that is not run here: list its packages in {REQUIREMENTS}"
                " (`pipenv requirements` does for a Pipfile), and commit that file"
            )
    return None, set()


def _choices(
    above: Sequence[str], ids: Mapping[str, str], documents: Mapping[str, bytes]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the paths of files that decide for the first of these folders, and their commands, in order."""
    where = above[0]
    manifest, requirements, setup = (posixpath.join(where, name) for name in (PYPROJECT, REQUIREMENTS, "setup.py"))
    document = read_pyproject(manifest, documents.get(manifest, b""))
    for name, command in _TOOLS.items():
        yield posixpath.join(where, name), command
    if "project" in document:
        for root in above[1:]:
            path = posixpath.join(root, PYPROJECT)
            if under(read_pyproject(path, documents.get(path, b"")), "tool", "uv", "workspace") is not None:
                yield posixpath.join(root, "uv.lock"), _TOOLS["uv.lock"]
    elif under(document, "tool", "poetry") is not None:
        yield manifest, _TOOLS["poetry.lock"]
    words = ["--requirement", REQUIREMENTS] if requirements in ids else []
    if setup in ids or "build-system" in document or under(document, "project", "dynamic") is not None:
        words += ["--editable", "."]
    elif under(document, "project", "dependencies") is not None:
        words += ["--requirement", PYPROJECT]
    if words:
        decided = next(path for path in (requirements, manifest, setup) if path in ids)
        yield decided, ("uv", "pip", "install", "--quiet", *words)


def folders_above(folder: str) -> list[str]:
    """Return a folder and those above it, up to the repository's top, `""`."""
    parents = (PurePosixPath(folder), *PurePosixPath(folder).parents)
    return ["" if where == PurePosixPath() else str(where) for where in dict.fromkeys(parents)]


def content_digest(ids: Mapping[str, str], paths: Iterable[str]) -> str:
    """Return a digest of the contents of these files, by their ids."""
    entries = "".join(f"{path}\0{ids[path]}\0" for path in sorted(set(paths)))
    return hashlib.sha256(entries.encode("utf-8", "surrogateescape")).hexdigest()


def under(document: Any, *keys: str) -> Any:
    """Return what is below these keys of a document, one after the other; None if there is nothing."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def read_pyproject(path: str, content: bytes) -> dict[str, Any]:
    """Return a `pyproject.toml`. Raises `ValueError` with its path if it cannot be read."""
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _named(ids: Mapping[str, str], texts: Iterable[bytes]) -> set[str]:
    """Return the lists of requirements that could be named in these texts, in any encoding."""
    text = b"\n".join(texts).replace(b"\0", b"")
    lists = (path for path in ids if path.endswith((".txt", ".in")))
    return {path for path in lists if posixpath.basename(path).encode("utf-8", "surrogateescape") in text}


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
