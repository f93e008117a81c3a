"""Node packages of one repository that depend on each other: `file:` dependencies, npm and pnpm workspaces.

npm and pnpm link them into `node_modules`, so their files must be those of the commit that runs. `python -m
evolverpc_common.node_packages INSTALLED FILES` links what was installed for their manifests, and prepares them.
"""

import itertools
import json
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE_JSON = "package.json"
NODE_MANIFESTS = (PACKAGE_JSON, "package-lock.json", "npm-shrinkwrap.json", ".npmrc")
NODE_LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
PNPM_LOCK = "pnpm-lock.yaml"
PNPM_WORKSPACE = "pnpm-workspace.yaml"
MODULES = "node_modules"

PREPARE = ("npm", "run", "--silent", "prepare")
"""The command that makes what a local package does not commit (`dist`); npm runs it whenever it links one."""

_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies")
_PNPM_FILES = (PNPM_LOCK, PNPM_WORKSPACE, ".pnpmfile.cjs")
_PATCH = ".patch"
_COPIED = re.compile(rb"\btype: directory\b")
"""What pnpm's lock has for a folder of the repository that pnpm copies instead of linking it."""

_GLOB = re.compile(r"""\s*-\s+(?:"([^"\\]+)"|'([^']+)'|([^\s"'#&*!|>%@`{}\[\],][^#"'{}\[\]]*?))\s*(?:\s#.*)?""")
_FOLDER = re.compile(r"(?:file:|link:)?(?P<path>(?:\.{0,2}|~)/.*|\.{1,2})|(?:file|link):(?P<bare>.*)")
_FOREIGN = re.compile(r"(workspace|link|portal|catalog):")


@dataclass(frozen=True)
class NodeProject:
    """The packages that npm or pnpm installs together for one program; paths are relative to the repository's top.

    `root`: the folder that npm runs in: the program's, or that of its npm workspaces; pnpm runs in the program's, and
    installs its workspace. `folders`: of all packages. `alone`: those that npm runs in afterwards, for what their
    `prepare` script needs. `archives`: packed packages that they name. `pnpm`: what else pnpm reads, its lock first;
    empty if npm installs. `outside`, `problems`: sentences about dependencies outside of the repository, and
    about those that cannot be installed. `unread`: manifests that must be read before the rest is complete.
    """

    root: str
    folders: tuple[str, ...]
    alone: tuple[str, ...]
    archives: tuple[str, ...]
    outside: tuple[str, ...]
    problems: tuple[str, ...]
    unread: frozenset[str]
    pnpm: tuple[str, ...] = ()

    def manifests(self, paths: Collection[str]) -> list[str]:
        """Return the manifests and archives among `paths` that npm or pnpm reads."""
        named = (posixpath.join(folder, name) for folder in self.folders for name in NODE_MANIFESTS)
        return [path for path in (*named, *self.archives, *self.pnpm) if path in paths]


def node_project(folder: str, paths: Collection[str], documents: Mapping[str, bytes]) -> NodeProject | None:
    """Return the packages of the program in `folder`, else of that at the repository's top; None if there is none.

    `paths`: all files of the repository. `documents`: those manifests that were read; repeat with more of them until
    none is `unread`. pnpm installs if there is a `pnpm-lock.yaml`, and no lock of npm beside it.

    Raises:
        ValueError: a manifest cannot be read; the text names it.
    """
    candidates = (where for where in dict.fromkeys((folder, "")) if posixpath.join(where, PACKAGE_JSON) in paths)
    start = next(candidates, None)
    if start is None:
        return None
    read = _Reader(paths, documents)
    above = (where for where in _ancestors(start) if read.has(where))
    root = next((where for where in above if start in read.workspaces(where)), start)
    workspaces = read.workspaces(root)
    pnpm = read.pnpm_files(root)
    outside: list[str] = []
    problems: list[str] = []
    archives: list[str] = []
    found = list(dict.fromkeys((root, *workspaces)))
    for where in found:  # grows
        for name, spec in read.dependencies(where):
            about = f"{posixpath.join(where, PACKAGE_JSON)}: the dependency `{name}` is `{spec}`"
            match = _FOLDER.fullmatch(spec)
            if not pnpm and _FOREIGN.match(spec):
                problems.append(
                    f"{about}, which npm cannot install: use npm workspaces with `*`, or `file:FOLDER`; or commit"
                    f" {PNPM_LOCK}, which `pnpm install` writes, and no lock of npm"
                )
                continue
            if match is None:
                continue
            given = match["path"] or match["bare"] or "."
            target = posixpath.normpath(posixpath.join(where, given))
            if given.startswith("~") or target.startswith(("/", "../")) or target == "..":
                outside.append(f"{about}, which is outside of the repository: commit that package to it, or publish it")
            elif read.has(target := "" if target == "." else target):
                found += [target] if target not in found else []
            elif target in paths:
                archives.append(target)
            else:
                problems.append(f"{about}, and the commit has no {posixpath.join(target, PACKAGE_JSON)}")
    alone = [where for where in found if where != root and where not in workspaces and read.prepares(where)]
    if pnpm and _COPIED.search(read.content(pnpm[0])):
        problems.append(
            f"{pnpm[0]}: pnpm copies a package of the repository, which needs its files: use `workspace:*` without"
            " `injected`, or `link:FOLDER`, instead of `file:FOLDER`, and run `pnpm install`"
        )
    texts = (tuple(outside), tuple(problems), frozenset(read.unread))
    if pnpm:
        return NodeProject(start, tuple(found), (), tuple(archives), *texts, pnpm)
    return NodeProject(root, tuple(found), tuple(alone), tuple(archives), *texts)


class _Reader:
    """Reads the manifests of folders; `unread`: those that are not there yet."""

    def __init__(self, paths: Collection[str], documents: Mapping[str, bytes]) -> None:
        self._paths = paths
        self._documents = documents
        self.unread: set[str] = set()

    def has(self, folder: str) -> bool:
        return posixpath.join(folder, PACKAGE_JSON) in self._paths

    def workspaces(self, folder: str) -> list[str]:
        """Return the folders of npm or pnpm workspaces of the package in a folder."""
        globs = self._pnpm_globs(folder) if self.pnpm_files(folder) else self._npm_globs(folder)
        wanted = [_expression(folder, glob) for glob in globs if not glob.startswith("!")]
        unwanted = [_expression(folder, glob[1:]) for glob in globs if glob.startswith("!")]
        return [
            where
            for where in sorted(package_folders(self._paths))
            if any(each.fullmatch(f"{where}/") for each in wanted)
            and not any(each.fullmatch(f"{where}/") for each in unwanted)
        ]

    def _npm_globs(self, folder: str) -> list[str]:
        declared = self._read(folder).get("workspaces")
        if isinstance(declared, dict):
            declared = declared.get("packages")
        return [glob for glob in declared if isinstance(glob, str)] if isinstance(declared, list) else []

    def _pnpm_globs(self, folder: str) -> list[str]:
        path = posixpath.join(folder, PNPM_WORKSPACE)
        return _listed_packages(path, self.content(path)) if path in self._paths else []

    def pnpm_files(self, folder: str) -> tuple[str, ...]:
        """Return the files that pnpm alone reads in a folder, its lock first; none if npm installs there."""
        lock, *others = (posixpath.join(folder, name) for name in _PNPM_FILES)
        if lock not in self._paths or any(posixpath.join(folder, name) in self._paths for name in NODE_LOCKS):
            return ()
        inside = posixpath.join(folder, "")
        patches = sorted(path for path in self._paths if path.endswith(_PATCH) and path.startswith(inside))
        return (lock, *(path for path in others if path in self._paths), *patches)

    def dependencies(self, folder: str) -> Iterator[tuple[str, str]]:
        for table in _DEPENDENCIES:
            named = self._read(folder).get(table)
            for name, spec in named.items() if isinstance(named, dict) else ():
                if isinstance(spec, str):
                    yield name, spec

    def prepares(self, folder: str) -> bool:
        return prepares(self._read(folder))

    def _read(self, folder: str) -> dict[str, Any]:
        path = posixpath.join(folder, PACKAGE_JSON)
        content = self.content(path)
        return {} if path in self.unread else _parsed(path, content)

    def content(self, path: str) -> bytes:
        """Return a file; empty if it is not there yet."""
        if path not in self._documents:
            self.unread.add(path)
        return self._documents.get(path, b"")


def _listed_packages(path: str, content: bytes) -> list[str]:
    """Return the globs that a `pnpm-workspace.yaml` lists under `packages`."""
    lines = content.decode("utf-8", "replace").splitlines()
    starts = [place for place, line in enumerate(lines) if re.match(r"""["']?packages["']?\s*:""", line)]
    if not starts:
        return []
    strict = re.fullmatch(r"packages:\s*(#.*)?", lines[starts[0]]) is not None
    globs: list[str] = []
    for line in lines[starts[0] + 1 :] if strict else ():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if re.match(r"[^\s-]", line):
            break
        match = _GLOB.fullmatch(line)
        strict = strict and match is not None
        globs += [glob for glob in match.groups() if glob] if match else []
    if not strict or not globs:
        raise ValueError(f"{path} cannot be read: write one line `  - 'GLOB'` below `packages:` for each glob")
    return globs


def package_folders(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders that have a `package.json`, those of installed packages excepted."""
    for path in paths:
        folder, name = posixpath.split(path)
        if name == PACKAGE_JSON and MODULES not in folder.split("/"):
            yield folder


def prepares(document: Mapping[str, Any]) -> bool:
    """Return whether a package has a `prepare` script."""
    scripts = document.get("scripts")
    return isinstance(scripts, dict) and "prepare" in scripts


def _parsed(path: str, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path} cannot be read: it is not a JSON object")
    return document


def _ancestors(folder: str) -> Iterator[str]:
    while folder:
        folder = posixpath.dirname(folder)
        yield folder


def _expression(folder: str, glob: str) -> re.Pattern[str]:
    """Return what matches the folders that a workspace's glob names, from the repository's top, with a `/` behind."""
    parts = posixpath.normpath(posixpath.join(folder, glob)).split("/")
    each = ["(?:[^/]+/)*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") + "/" for part in parts]
    return re.compile("".join(each))


def link_modules(installed: Path, files: Path, folder: str) -> list[Path]:
    """Make `files/folder/node_modules` from that of `installed`, if there is one there and none here. Blocks.

    Links to local packages lead to those of `files`; everything else to what was installed. Returns the folders of the
    local packages, in `files`.

    Raises:
        OSError: it cannot be written.
    """
    modules, place = installed / folder / MODULES, files / folder / MODULES
    if not modules.is_dir() or os.path.lexists(place) or not place.parent.is_dir():
        return []
    local = {entry: target for entry in _entries(modules) if (target := _local_target(entry, installed)) is not None}
    if not local:
        place.symlink_to(modules)
        return []
    _compose(modules, place, set(local))
    return [files / target for target in local.values()]


def _entries(modules: Path) -> Iterator[Path]:
    """Yield the packages in a `node_modules`, those of scopes included."""
    for entry in sorted(modules.iterdir()):
        yield from sorted(entry.iterdir()) if entry.name.startswith("@") and entry.is_dir() else (entry,)


def _local_target(entry: Path, top: Path) -> Path | None:
    """Return the folder of a local package that the entry links to, relative to `top`; None for another entry."""
    if not entry.is_symlink():
        return None
    target = Path(os.path.normpath(entry.parent / entry.readlink()))
    if not target.is_relative_to(top) or MODULES in target.relative_to(top).parts:
        return None
    return target.relative_to(top)


def _compose(modules: Path, place: Path, local: Collection[Path]) -> None:
    place.mkdir()
    for entry in modules.iterdir():
        own = place / entry.name
        if entry in local or (entry.is_symlink() and modules.name == ".bin"):
            own.symlink_to(entry.readlink())
        elif entry.name == ".bin" or any(entry in path.parents for path in local):
            _compose(entry, own, local)
        else:
            own.symlink_to(entry)


def to_prepare(packages: Iterable[Path]) -> list[Path]:
    """Return those of the local packages that have a `prepare` script, each after those it depends on. Blocks.

    Raises:
        ValueError: a `package.json` cannot be read.
    """
    documents = {}
    for folder in dict.fromkeys(packages):
        if (file := folder / PACKAGE_JSON).is_file():
            documents[folder] = _parsed(str(file), file.read_bytes())
    named = {str(document.get("name")): folder for folder, document in documents.items()}
    ordered: dict[Path, None] = {}
    begun: set[Path] = set()

    def visit(folder: Path) -> None:
        if folder in begun:
            return
        begun.add(folder)
        tables = (documents[folder].get(table) for table in _DEPENDENCIES)
        for name in itertools.chain.from_iterable(table for table in tables if isinstance(table, dict)):
            if name in named:
                visit(named[name])
        ordered[folder] = None

    for folder in documents:
        visit(folder)
    return [folder for folder in ordered if prepares(documents[folder])]


def main(installed: Path, files: Path) -> int:
    """Link what was installed below `installed` to the packages below `files`, and prepare the local ones."""
    folders = [""]
    for folder, names, _ in os.walk(installed):
        folders += [os.path.relpath(folder, installed)] if MODULES in names else []
        names[:] = [name for name in names if name != MODULES]
    local = [package for folder in dict.fromkeys(folders) for package in link_modules(installed, files, folder)]
    for package in to_prepare(local):
        done = subprocess.run(PREPARE, cwd=package, check=False)  # noqa: S603  # the package's own script
        if done.returncode != 0:
            sys.stderr.write(f"`npm run prepare` failed in {package.relative_to(files)}\n")
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
