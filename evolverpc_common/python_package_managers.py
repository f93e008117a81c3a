"""Install a Python program with its repository's own tool, in a checkout: which tool that is, what it reads, and uv."""

import hashlib
import os
import posixpath
import shlex
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

SERVER_SETTINGS = "gepa.toml"
"""The file of a program's settings, which may name the command that installs it."""

_OF_NODE = ("npm", "npx", "pnpm", "yarn", "bun", "node")

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


def tool_variables(venv: Path, uv: str, path: str) -> dict[str, str]:
    """Return the variables of tools that install into an environment. `path`: where else they find programs."""
    return {
        "VIRTUAL_ENV": str(venv),
        "PATH": os.pathsep.join((str(venv / "bin"), str(Path(uv).parent), path)),
        "UV_PROJECT_ENVIRONMENT": str(venv),
        "PIP_PYTHON": str(venv / "bin" / "python"),  # a pip of another environment changes this one
        "UV_PYTHON_DOWNLOADS": "never",
        "PDM_IGNORE_SAVED_PYTHON": "1",
        "POETRY_KEYRING_ENABLED": "false",
    }


@dataclass(frozen=True)
class OwnInstall:
    """The command in a program's `gepa.toml` that installs it, in place of a tool that its files decide.

    `reads`: files and folders that the command reads besides those of known tools, from the program's folder.
    """

    command: tuple[str, ...]
    reads: tuple[str, ...] = ()

    @property
    def for_node(self) -> bool:
        """Whether it installs `node_modules`, and not a Python environment."""
        return self.command[0] in _OF_NODE

    def digest(self, folder: str, ids: Mapping[str, str], known: Iterable[str]) -> str:
        """Return a digest of what it reads: `known`, the files of known tools, those it names, and `reads`.

        Raises:
            ValueError: the repository lacks an entry of `reads`.
        """
        named = ("Makefile", *self.command) if self.command[0] == "make" else self.command
        read = {*known, *(path for word in named if (path := posixpath.normpath(posixpath.join(folder, word))) in ids)}
        for entry in (*self.reads, SERVER_SETTINGS):
            place = posixpath.normpath(posixpath.join(folder, entry))
            found = {path for path in ids if path == place or path.startswith(f"{place}/") or place == "."}
            if not found:
                settings = posixpath.join(folder, SERVER_SETTINGS)
                raise ValueError(f"{settings}: `install.reads` has {entry!r}, and the repository has no {place}")
            read |= found
        return content_digest(ids, read)


def own_install(table: Any) -> OwnInstall:
    """Return the table `install` of a `gepa.toml`. Raises `ValueError` if it is none."""
    words: dict[str, Any] = {"command": None, "reads": []} | (table if isinstance(table, dict) else {str(table): None})
    if unknown := next((name for name in words if name not in ("command", "reads")), None):
        raise ValueError(f"`install` has `command` and `reads`, not {unknown!r}")
    for name, value in words.items():
        is_list = isinstance(value, list) and all(isinstance(word, str) and word.strip() for word in value)
        if not is_list or (name == "command" and not value):
            raise ValueError(f"`install.{name}` is {value!r}: give a list of texts, such as ['make', 'install']")
    return OwnInstall(tuple(words["command"]), tuple(words["reads"]))


def own_install_in(folder: str, documents: Mapping[str, bytes]) -> OwnInstall | None:
    """Return that of the `gepa.toml` in a folder; None if it names none. Raises `ValueError`."""
    path = posixpath.join(folder, SERVER_SETTINGS)
    table = read_toml(path, documents.get(path, b"")).get("install")
    try:
        return None if table is None else own_install(table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True)
class PythonInstall:
    """What installs a program: `command`, run in `folder` (from the repository's top), and the file that decided it.

    `digest`: of all files that the command reads. `unused`: paths of other tools' files beside that one. `is_own`:
    whether the command is the program's own.
    """

    folder: str
    command: tuple[str, ...]
    decided_by: str
    digest: str
    unused: tuple[str, ...] = ()
    is_own: bool = False

    @property
    def described(self) -> str:
        """Return what is installed, and with what."""
        tool = shlex.join(self.command) if self.is_own else self.command[0]
        return f"what {self.decided_by} lists, with {tool}"

    async def run(
        self,
        top: Path,
        uv: str,
        python: str,
        run: Callable[[list[str], Path], Awaitable[str]],
    ) -> tuple[str, ...]:
        """Install into the environment of `python` what the checkout in `top` needs.

        Packages of the repository are linked. Return the folders below `top` that Python then imports from. `run` runs
        a command in a folder, with `tool_variables`, and returns its output; what it raises is raised.
        """
        name, *words = self.command
        ours = str(Path(sys.base_prefix) / "bin" / "python3")
        if self.is_own:
            command = [name, *words]
            if name != "uv" and "pip" in command[:3]:  # `python -m pip`
                await run([uv, "pip", "install", "--quiet", "--no-config", "--python", python, "pip"], top)
        elif name == "uv":
            command = [uv, *words, "--python", python]
        else:
            command = [uv, "tool", "run", "--no-config", "--python", ours, *_INSTALLED_WITH.get(name, ()), name, *words]
        await run(command, top / self.folder)
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
    settings = posixpath.join(folder, SERVER_SETTINGS)
    wanted = {posixpath.join(where, name) for where in above for name in (PYPROJECT, REQUIREMENTS)} | {settings}
    wanted |= _named(ids, (text for path, text in documents.items() if posixpath.basename(path) != PYPROJECT))
    if unread := (wanted & ids.keys()) - documents.keys():
        return None, unread
    own = own_install_in(folder, documents)
    if own is not None and not own.for_node:
        digest = own.digest(folder, ids, _read(ids) | documents.keys() & ids.keys())
        return PythonInstall(folder, own.command, settings, digest, is_own=True), set()
    for number, where in enumerate(above):
        choices = [(path, command) for path, command in _choices(above[number:], ids, documents) if path in ids]
        unknown = [path for name in _UNKNOWN if (path := posixpath.join(where, name)) in ids]
        if choices:
            (decided, command), *others = choices
            read = _read(ids) | documents.keys() | _named(ids, documents.values())
            unused = (*(path for path, _ in others if posixpath.basename(path) != PYPROJECT), *unknown)
            return PythonInstall(where, command, decided, content_digest(ids, read), unused), set()
        if unknown:
            raise ValueError(
                f"{unknown[0]} is of a tool that is not run here: list its packages in {REQUIREMENTS}"
                " (`pipenv requirements` does for a Pipfile), and commit that file"
            )
    return None, set()


def _read(ids: Iterable[str]) -> set[str]:
    return {path for path in ids if posixpath.basename(path) in _READ or path.endswith((".whl", ".tar.gz"))}


def _choices(
    above: Sequence[str], ids: Mapping[str, str], documents: Mapping[str, bytes]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the paths of files that decide for the first of these folders, and their commands, in order."""
    where = above[0]
    manifest, requirements, setup = (posixpath.join(where, name) for name in (PYPROJECT, REQUIREMENTS, "setup.py"))
    document = read_toml(manifest, documents.get(manifest, b""))
    for name, command in _TOOLS.items():
        yield posixpath.join(where, name), command
    if "project" in document:
        for root in above[1:]:
            path = posixpath.join(root, PYPROJECT)
            if under(read_toml(path, documents.get(path, b"")), "tool", "uv", "workspace") is not None:
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


def read_toml(path: str, content: bytes) -> dict[str, Any]:
    """Return a TOML file. Raises `ValueError` with its path if it cannot be read."""
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
