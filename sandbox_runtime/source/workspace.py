"""Work with a program's files in a running sandbox: prebuilt commands, scripts, and uncommitted changes."""

import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_runtime.api.sandbox import EXEC_BYTES, SandboxError
from sandbox_runtime.api.spec import Command
from sandbox_runtime.runtime import Sandbox
from sandbox_runtime.source.commits import ids_of
from sandbox_runtime.source.source import PROGRAM

BIN = "bin"
"""The folder of prebuilt commands in a workspace; runtimes put it first on `PATH`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_ADD_S = 60.0
_PREPARE_S = 600.0

_ADD = 'mkdir -p "$1"; cat > "$1/.$2"; chmod 755 "$1/.$2"; mv -f "$1/.$2" "$1/$2"'
_IGNORE_MODULES = 'mkdir -p "$1/.git/info"; echo node_modules >> "$1/.git/info/exclude"; shift; exec "$@"'


@dataclass(frozen=True)
class PrebuiltCommand:
    """An executable of the optimizer. `script`: the file's content, with its `#!` line.

    Raises:
        ValueError: the name is invalid.
    """

    name: str
    script: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be the name of a command: letters, digits, and . _ + - after the first"
            )

    def install_command(self) -> Command:
        """Return a command that puts the executable in the workspace, in place of one of the same name."""
        return Command(("sh", "-ec", _ADD, "sh", BIN, self.name), stdin=self.script, timeout_s=_ADD_S)


def bash(script: str, cwd: str, timeout_s: float, env: Mapping[str, str] | None) -> Command:
    """Return a command that runs a script in a folder of the workspace."""
    return Command(("bash", "-c", script), cwd=cwd, timeout_s=timeout_s, env=dict(env or {}))


def link_command(python: Sequence[str], installed: str) -> Command:
    """Return a command that links Node's packages into a program, and prepares its local ones; git ignores the links.

    `python`: an interpreter that has our packages. `installed`: see `evolverpc_common.node_package_managers`.
    """
    link = (*python, "-m", "evolverpc_common.node_package_managers", installed, PROGRAM)
    return Command(("sh", "-ec", _IGNORE_MODULES, "sh", PROGRAM, *link), timeout_s=_PREPARE_S)


MANIFESTS_BYTES = 64 * 2**20
"""Largest size of the manifests, unpacked."""

_ASK_S = 60.0
_READ = 'for f do test ! -f "$f" || printf "%s\\0" "$f"; done | tar -ch --null -T - | gzip -c'
_DIFF = (
    'GIT_INDEX_FILE="$(mktemp -u)"; export GIT_INDEX_FILE; git add -A .;'
    ' git diff --cached --binary --full-index --no-ext-diff --no-textconv "$1" | gzip -c; rm -f "$GIT_INDEX_FILE"'
)
_APPLY = (
    'patch="$(mktemp)"; gzip -dc > "$patch";'
    ' test ! -s "$patch" || git apply --binary --whitespace=nowarn "$patch"; rm -f "$patch"'
)
_LIST = (
    'GIT_INDEX_FILE="$(mktemp -u)"; export GIT_INDEX_FILE; git add -A .; git ls-files -z --stage | gzip -c;'
    ' rm -f "$GIT_INDEX_FILE"'
)
_PACK = (
    'test -d "$1" && test ! -L "$1" || exit 0; cd "$1";'
    ' find . ! -type d -print0 | tar -c --no-recursion --null -T - | head -c "$2"'
)
_BASH = ("bash", "-o", "pipefail", "-ec")
ARTIFACTS_BYTES = 64 * 2**20
"""Largest size of a program's artifacts, as a tar; what is beyond it is cut off."""


@dataclass(frozen=True)
class Workspace:
    """The present files of a program in a running sandbox. They are untrusted."""

    sandbox: Sandbox

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the files among these paths, from the repository's top. Raises `SandboxError`."""
        wanted = set(paths)
        if not wanted:
            return {}
        written = await self._written((*_BASH, _READ, "bash", *sorted(wanted)), "its manifests")
        try:
            plain = zlib.decompressobj(wbits=31).decompress(written, MANIFESTS_BYTES)
            with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
                return {
                    entry.name: content.read()
                    for entry in archive
                    if entry.isfile() and entry.name in wanted and (content := archive.extractfile(entry)) is not None
                }
        except (zlib.error, tarfile.TarError, EOFError) as error:
            raise SandboxError(f"sandbox {self.sandbox.id}: its manifests cannot be read: {error}") from None

    async def ids(self) -> dict[str, str]:
        """Return the ids of the contents of all files but ignored ones, by path. Raises `SandboxError`."""
        written = await self._written((*_BASH, _LIST), "the list of its files")
        try:
            plain = zlib.decompressobj(wbits=31).decompress(written, MANIFESTS_BYTES)
        except zlib.error as error:
            raise SandboxError(f"sandbox {self.sandbox.id}: the list of its files cannot be read: {error}") from None
        return ids_of(plain, place=1)

    async def packed(self, folder: str) -> bytes:
        """Return a tar of what is in a folder, from the repository's top, cut off at `ARTIFACTS_BYTES`.

        Empty if there is no such folder. Raises `SandboxError`.
        """
        # Without `pipefail`: `head` ends the program before it.
        argv = ("bash", "-ec", _PACK, "bash", folder, str(ARTIFACTS_BYTES))
        return await self._written(argv, f"its files in {folder}", most_bytes=ARTIFACTS_BYTES + 1)

    async def changes(self, commit: str) -> bytes:
        """Return all differences from the commit but ignored files, as a compressed patch. Raises `SandboxError`."""
        return await self._written((*_BASH, _DIFF, "bash", commit), "what was changed in it")

    async def _written(self, argv: tuple[str, ...], what: str, *, most_bytes: int = EXEC_BYTES) -> bytes:
        done = await self.sandbox.exec(Command(argv, cwd=PROGRAM, timeout_s=_ASK_S), most_bytes=most_bytes)
        if done.status != 0:
            stderr = done.stderr[-1000:].decode("utf-8", "replace")
            raise SandboxError(f"sandbox {self.sandbox.id}: {what} cannot be read: {stderr or 'it took too long'}")
        if len(done.stdout) >= most_bytes:
            raise SandboxError(f"sandbox {self.sandbox.id}: {what} is more than {most_bytes} bytes")
        return done.stdout


def restore_command(changes: bytes) -> Command:
    """Return a command that applies changes to a program's folder that is as in the commit."""
    return Command((*_BASH, _APPLY), cwd=PROGRAM, stdin=changes, timeout_s=_ASK_S)
