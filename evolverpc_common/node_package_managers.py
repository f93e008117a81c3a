"""Install a Node program with its repository's own tool, in a checkout, and link what it installed into a program.

`python -m evolverpc_common.node_package_managers INSTALLED FILES` links the packages that were installed in a checkout
into other files of the same repository, and prepares the local ones: npm, pnpm, yarn and bun link packages of the
repository into `node_modules`, so their files must be those of the program that runs.
"""

import itertools
import json
import os
import posixpath
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.build_cache import CHECKOUT
from evolverpc_common.python_package_managers import (
    SERVER_SETTINGS,
    content_digest,
    folders_above,
    own_install_in,
    under,
)

PACKAGE_JSON = "package.json"
MODULES = "node_modules"

PREPARE = ("npm", "run", "--silent", "prepare")
"""The command that makes what a local package does not commit (`dist`); npm runs it whenever it links one."""

_PNPM_WORKSPACE = "pnpm-workspace.yaml"
_LOCKS = {
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
}
"""Locks and their tools; the first in a folder decides, unless `packageManager` names another tool."""

_READ = {
    *(PACKAGE_JSON, *_LOCKS, _PNPM_WORKSPACE, ".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs", ".yarnrc", ".yarnrc.yml"),
    *("bunfig.toml", "binding.gyp"),
}
_READ_ENDINGS = (".patch", ".prisma", ".tgz")
"""Files that these tools, and what packages run when they are installed, read in any folder of the repository."""

_SCRIPTS = ("preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare")
_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies")
_FOLDER = re.compile(r"(?:file:|link:)?(\.{1,2}(?:/.*)?)")
_MANAGER = re.compile(r"(npm|pnpm|yarn|bun)@(\d+\.\d+\.\d+[\w.-]*)(\+.*)?")
_LOCK_VERSION = re.compile(rb"^lockfileVersion:\s*['\"]?(\d+)\.", re.MULTILINE)
_PNPM_OF_LOCK = {b"6": "8", b"9": "10"}
"""The newest pnpm that reads a version of its lock and runs on Node 20."""

NPM_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")
_COMMANDS = {
    "npm": (("ci", *NPM_OPTIONS), ("install", *NPM_OPTIONS)),
    "pnpm": (("install", "--frozen-lockfile", "--loglevel=error"), ("install", "--no-frozen-lockfile")),
    "yarn 1": (("install", "--frozen-lockfile", "--non-interactive"), ("install", "--non-interactive")),
    "yarn": (("install", "--immutable"), ("install", "--no-immutable")),
    "bun": (("install", "--frozen-lockfile"), ("install",)),
}
"""The commands of each tool with a lock, and without one."""

_TOOL_VARIABLES = {"CI": "true", "YARN_NODE_LINKER": "node-modules", "YARN_ENABLE_TELEMETRY": "0"}
"""Variables of all tools: without a terminal they would ask, and yarn's other linkers need its own `node`."""

_WITH_PROXY = (
    'test -z "${HTTPS_PROXY-}" || export YARN_HTTP_PROXY="$HTTPS_PROXY" YARN_HTTPS_PROXY="$HTTPS_PROXY";'
    " grep -qs npmRegistryServer .yarnrc.yml || export YARN_NPM_REGISTRY_SERVER="
    '"${NPM_CONFIG_REGISTRY-https://registry.npmjs.org}"; exec "$@"'
)
"""yarn reads its own variables only, and has a registry of its own, which holds the same."""

_ON_PATH = 'PATH="$0:$PATH"; exec "$@"'

_KEEP_MODULES = """
const fs = require("fs"), path = require("path");
const [given, checkout, ...modules] = process.argv.slice(1), top = fs.realpathSync(given);
const own = new Map(), files = [], found = [];
const named = (file) => {  // a package is known by its name and version; JSON that is none has neither
  try {
    const { name, version } = JSON.parse(fs.readFileSync(file, "utf8"));
    return name ? `${name}@${version}` : undefined;
  } catch { return undefined; }
};
const fail = (entry, words) => { console.error(`${path.relative(top, entry)} ${words}`); process.exit(1); };
const inside = (file) => {
  const relative = path.relative(top, file);
  return relative.startsWith("..") || relative.split("/").includes("node_modules") ? null : relative;
};
const each = (folder, visit) => {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) visit(path.join(folder, entry.name), entry);
};
const find = (folder) => each(folder, (file, entry) => {
  if (!entry.isDirectory()) {
    files.push(file);
    const name = entry.name === "package.json" && entry.isFile() ? named(file) : undefined;
    if (name) own.set(name, folder);
  } else if (entry.name === "node_modules") found.push(file);
  else find(file);
});
const keep = (folder) => each(folder, (file, entry) => {
  const isPackage = /[/](node_modules|@[^/]*)$/.test(folder), manifest = path.join(file, "package.json");
  if (entry.isSymbolicLink()) {
    const target = path.resolve(folder, fs.readlinkSync(file)), local = inside(target);
    if (isPackage && !fs.existsSync(file))
      fail(file, `leads to ${target}, which the repository has not: commit that package to it, or publish it`);
    if (local !== null) { fs.unlinkSync(file); fs.symlinkSync(path.join(checkout, local), file); }
  } else if (entry.isDirectory()) {
    const from = isPackage && fs.existsSync(manifest) ? own.get(named(manifest)) : undefined;
    if (from !== undefined)
      fail(file, `is a copy of ${path.relative(top, from)}, which changes of the program would not reach: use a`
        + " workspace, or `link:FOLDER`, instead of `file:FOLDER` or `injected`, and write the lock again");
    keep(file);
  }
});
find(top);
found.forEach(keep);
files.forEach((file) => fs.rmSync(file, { force: true }));
modules.forEach((folder) => fs.mkdirSync(path.join(top, folder, ".bin"), { recursive: true }));
fs.writeFileSync(path.join(top, "package.json"), "{}");
"""
"""Leaves only `node_modules` of a checkout, with links to packages of the repository at the place of programs.

`package.json` remains, so that a jail shows all of it.
"""


@dataclass(frozen=True)
class NodeInstall:
    """What installs a program: the words of `command`, run in `folder`, and the file that decided it.

    Paths are from the repository's top. `tool`: the package of npm's registry that is the tool, None for this machine's
    npm. `program`: the folder of the program's `package.json`. `digest`: of all files that the command reads. `unused`:
    locks of other tools beside that file. `own_folder`: where the command is run if it is the program's own, None else.
    `linked`: folders outside of `folder` that npm links, for which it has to be run there first, in this order.
    """

    folder: str
    program: str
    tool: str | None
    command: tuple[str, ...]
    decided_by: str
    digest: str
    unused: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    own_folder: str | None = None

    @property
    def described(self) -> str:
        """Return what is installed, and with what."""
        tool = self.tool or "npm" if self.own_folder is None else shlex.join(self.command)
        return f"what {self.decided_by} lists, with {tool}"

    @property
    def manager(self) -> str:
        """Return the name of the tool: npm, pnpm, yarn or bun."""
        return "npm" if self.tool is None else self.tool.removeprefix("@yarnpkg/cli-dist").partition("@")[0] or "yarn"

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the folders that it installs to for the program, from the repository's top, the innermost first."""
        return tuple(posixpath.join(where, MODULES) for where in dict.fromkeys((self.program, self.folder)))

    async def run(
        self,
        top: Path,
        npm: Sequence[str],
        node: str,
        scratch: Path,
        run: Callable[[Sequence[str], Path, Mapping[str, str]], Awaitable[str]],
    ) -> None:
        """Install into the checkout in `top`, and leave only `node_modules` of it.

        `run` runs a command in a folder with more variables, and returns its output; what it raises is raised.
        """
        name, words, folder, command = self.manager, [*npm], top / self.folder, self.command
        if self.tool is not None:
            where = scratch / "tool"
            fetch = [*npm, "install", "--prefix", str(where), "--engine-strict", *NPM_OPTIONS, self.tool]
            await run(fetch, top.parent, _TOOL_VARIABLES)
            words = [str(where / MODULES / ".bin" / name)]
        options = ["--store-dir", str(scratch / "pnpm-store")] if name == "pnpm" else []
        if self.own_folder is not None:
            found = os.pathsep.join((os.path.dirname(words[0]), os.path.dirname(node)))  # noqa: PTH120  texts
            words, folder, options = ["sh", "-c", _ON_PATH, found], top / self.own_folder, []
        if name == "yarn":
            words = ["sh", "-c", _WITH_PROXY, "sh", *words]
        if self.own_folder is None and name == "npm" and self.program != self.folder:
            around = await run([*words, "prefix", "--loglevel=silent"], top / self.program, _TOOL_VARIABLES)
            if _last_line(around) != _last_line(await run(["pwd", "-P"], folder, {})):
                command, folder = _COMMANDS["npm"][1], top / self.program  # it is none of the workspaces there
        for linked in self.linked:
            await run([*words, *_COMMANDS["npm"][1], *options], top / linked, _TOOL_VARIABLES)
        await run([*words, *command, *options], folder, _TOOL_VARIABLES)
        await run([node, "-e", _KEEP_MODULES, str(top), CHECKOUT, *self.modules], top, {})


def _last_line(output: str) -> str:
    return output.rstrip("\n").rpartition("\n")[2]


def node_install(
    folder: str, ids: Mapping[str, str], documents: Mapping[str, bytes]
) -> tuple[NodeInstall | None, set[str]]:
    """Return what installs the program in `folder`, by the nearest `package.json` there or above that lists anything.

    Its tool is run in the folder with the lock: that one, else one above it that has workspaces. Also return the paths
    of files that must be read first; repeat with them in `documents` until there are none. `ids`: the ids of the
    contents of the repository's files, by path.

    Raises:
        ValueError: a file cannot be read, or asks for a tool that is not known here; the text names it.
    """
    manifests = {posixpath.join(where, PACKAGE_JSON): where for where in package_folders(ids)}
    settings = posixpath.join(folder, SERVER_SETTINGS)
    if unread := ({settings} & ids.keys() | manifests.keys()) - documents.keys():
        return None, unread
    above = [where for where in folders_above(folder) if posixpath.join(where, PACKAGE_JSON) in manifests]
    own = own_install_in(folder, documents)
    if own is not None and not own.for_node:
        own = None
    if not above and own is not None:
        raise ValueError(f"{settings}: `install` runs {own.command[0]}, and there is no {PACKAGE_JSON} here or above")
    if not above:
        return None, set()
    read = {where: _parsed(posixpath.join(where, PACKAGE_JSON), documents) for where in above}
    listing = (*_DEPENDENCIES, "workspaces", "packageManager")
    listed = (where for where in above if _locks(where, ids) or any(map(read[where].get, listing)))
    program = next(listed, above[0])
    around = above[above.index(program) + 1 :]
    of_pnpm = {where for where in above if posixpath.join(where, _PNPM_WORKSPACE) in ids}
    roots = [program, *(where for where in around if "workspaces" in read[where] or where in of_pnpm)]
    root = next((where for where in roots if _locks(where, ids)), roots[-1])
    name, tool = _manager(root, read[root])
    locks = _locks(root, ids)
    name = name or next(iter(locks.values()), "pnpm" if root in of_pnpm else "npm")
    lock = next((path for path, manager in locks.items() if manager == name), None)
    if tool is None and name != "npm":
        if lock is not None and lock not in documents:
            return None, {lock}
        tool = _newest_tool(name, lock, documents, posixpath.join(root, PACKAGE_JSON))
    command = _COMMANDS["yarn 1" if str(tool).startswith("yarn@") else name][lock is None]
    named = _named_by_scripts(manifests, documents, ids)
    files = {path for path in ids if posixpath.basename(path) in _READ or path.endswith(_READ_ENDINGS)}
    files |= named | {path for path in ids if ".yarn" in path.split("/")}
    digest = content_digest(ids, (path for path in files if MODULES not in path.split("/")))
    unused = tuple(path for path, manager in locks.items() if path != lock)
    decided = lock or posixpath.join(root, PACKAGE_JSON)
    if own is not None:
        digest = own.digest(folder, ids, files)
        return NodeInstall(root, program, tool, own.command, settings, digest, own_folder=folder), set()
    linked = _linked(program, root, manifests, documents) if name == "npm" else ()
    return NodeInstall(root, program, tool, command, decided, digest, unused, linked), set()


def _linked(program: str, root: str, manifests: Collection[str], documents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the folders outside of `root` that npm links for a program, each after those it depends on."""
    found: dict[str, None] = {}
    begun: set[str] = set()

    def visit(folder: str) -> None:
        begun.add(folder)
        document = _parsed(posixpath.join(folder, PACKAGE_JSON), documents)
        for table in filter(None, map(document.get, _DEPENDENCIES)):
            for spec in table.values() if isinstance(table, dict) else ():
                if (match := _FOLDER.fullmatch(str(spec))) is None:
                    continue
                target = posixpath.normpath(posixpath.join(folder, match[1]))
                if target not in begun and posixpath.join(target, PACKAGE_JSON) in manifests:
                    visit(target)
        if folder != program and root and not folder.startswith(f"{root}/"):
            found[folder] = None

    visit(program)
    return tuple(found)


def _locks(folder: str, ids: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of the locks in a folder, with their tools."""
    return {path: tool for name, tool in _LOCKS.items() if (path := posixpath.join(folder, name)) in ids}


def _manager(folder: str, document: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the tool that `packageManager` names, and its package; nothing if there is none."""
    named = document.get("packageManager")
    if named is None:
        return "", None
    match = _MANAGER.fullmatch(str(named))
    if match is None:
        raise ValueError(
            f"{posixpath.join(folder, PACKAGE_JSON)}: `packageManager` is {named!r}, and npm, pnpm, yarn or bun with"
            " its version can install here, such as `pnpm@10.1.0`"
        )
    name, version = match[1], match[2]
    return name, f"{name if name != 'yarn' or version.startswith('1.') else '@yarnpkg/cli-dist'}@{version}"


def _newest_tool(name: str, lock: str | None, documents: Mapping[str, bytes], manifest: str) -> str:
    """Return the package of the newest tool that reads a lock."""
    content = b"lockfileVersion: '9.0'" if lock is None else documents[lock]
    if name != "pnpm":
        return "bun@1" if name == "bun" else "yarn@1" if b"yarn lockfile v1" in content else "@yarnpkg/cli-dist@4"
    written = _LOCK_VERSION.search(content)
    if written is None or written[1] not in _PNPM_OF_LOCK:
        raise ValueError(
            f"{lock} is of no version that is known here: name its pnpm in {manifest},"
            ' `"packageManager": "pnpm@VERSION"`'
        )
    return f"pnpm@{_PNPM_OF_LOCK[written[1]]}"


def _named_by_scripts(manifests: Mapping[str, str], documents: Mapping[str, bytes], ids: Collection[str]) -> set[str]:
    """Return the files that the scripts name which are run at an installation."""
    named: set[str] = set()
    for manifest, folder in manifests.items():
        try:
            scripts = under(json.loads(documents[manifest]), "scripts")
        except (ValueError, RecursionError):
            continue  # its tool refuses it if it reads it
        found = (str(scripts[name]) for name in _SCRIPTS if isinstance(scripts, dict) and name in scripts)
        words = {word for text in found for word in re.split(r"[^\w./@-]+", text)}
        named |= {path for word in words if (path := posixpath.normpath(posixpath.join(folder, word))) in ids}
    return named


def package_folders(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders that have a `package.json`, those of installed packages excepted."""
    for path in paths:
        folder, name = posixpath.split(path)
        if name == PACKAGE_JSON and MODULES not in folder.split("/"):
            yield folder


def _parsed(path: str, documents: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        document = json.loads(documents[path])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path} cannot be read: it is not a JSON object")
    return document


def installed_modules(installed: Path) -> Iterator[Path]:
    """Yield each `node_modules` below a folder, those inside of another excepted. Blocks."""
    for folder, names, _ in os.walk(installed):
        if MODULES in names:
            names.remove(MODULES)
            yield Path(folder, MODULES)


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
    targets = {entry: _local_target(entry, installed) for entry in _entries(modules)}
    local = {entry: files / target for entry, target in targets.items() if target is not None}
    if not local:
        place.symlink_to(modules)
        return []
    _compose(modules, place, local)
    return [*local.values()]


def _entries(modules: Path) -> Iterator[Path]:
    """Yield the packages in a `node_modules`, those of scopes included."""
    for entry in sorted(modules.iterdir()):
        yield from sorted(entry.iterdir()) if entry.name.startswith("@") and entry.is_dir() else (entry,)


def _local_target(entry: Path, top: Path) -> Path | None:
    """Return the folder of a local package that the entry links to, relative to `top`; None for another entry."""
    if not entry.is_symlink():
        return None
    target = Path(os.path.normpath(entry.parent / entry.readlink()))
    found = next((target.relative_to(where) for where in (top, CHECKOUT) if target.is_relative_to(where)), None)
    return None if found is None or MODULES in found.parts else found


def _compose(modules: Path, place: Path, local: Mapping[Path, Path]) -> None:
    place.mkdir()
    for entry in modules.iterdir():
        own = place / entry.name
        if entry in local:
            own.symlink_to(os.path.relpath(local[entry], place))
        elif entry.is_symlink() and modules.name == ".bin":
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
            documents[folder] = _parsed(str(file), {str(file): file.read_bytes()})
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
    return [folder for folder in ordered if under(documents[folder], "scripts", "prepare") is not None]


def main(installed: Path, files: Path, *folders: str) -> int:
    """Link what was installed below `installed` to the packages below `files`, and prepare the local ones.

    `folders`: those to link into; by default all that were installed into.
    """
    if not folders:
        folders = tuple(os.path.relpath(modules.parent, installed) for modules in installed_modules(installed))
    local = [package for folder in folders for package in link_modules(installed, files, folder)]
    for package in to_prepare(local):
        done = subprocess.run(PREPARE, cwd=package, check=False)  # noqa: S603  # the package's own script
        if done.returncode != 0:
            sys.stderr.write(f"`npm run prepare` failed in {package.relative_to(files)}\n")
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
