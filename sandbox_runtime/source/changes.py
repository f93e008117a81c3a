"""What was changed in a sandbox's program since its commit: read out of it, and put into the next one."""

import io
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_runtime.api.sandbox import EXEC_BYTES, Sandbox, SandboxError
from sandbox_runtime.api.spec import Command
from sandbox_runtime.source.source import PROGRAM

MANIFESTS_BYTES = 64 * 2**20
"""What manifests may take, unpacked."""

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
_BASH = ("bash", "-o", "pipefail", "-ec")


@dataclass(frozen=True)
class Workspace:
    """The program's files in a sandbox that is up, as they are now. What is read there was written by anybody."""

    sandbox: Sandbox

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The files among these paths, from the repository's top. Raises `SandboxError`."""
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

    async def changes(self, commit: str) -> bytes:
        """All that is not as in the commit, ignored files apart, as a compressed patch. Raises `SandboxError`."""
        return await self._written((*_BASH, _DIFF, "bash", commit), "what was changed in it")

    async def _written(self, argv: tuple[str, ...], what: str) -> bytes:
        done = await self.sandbox.exec(Command(argv, cwd=PROGRAM, timeout_s=_ASK_S))
        if done.status != 0:
            said = done.stderr[-1000:].decode("utf-8", "replace")
            raise SandboxError(f"sandbox {self.sandbox.id}: {what} cannot be read: {said or 'it took too long'}")
        if len(done.stdout) >= EXEC_BYTES:
            raise SandboxError(f"sandbox {self.sandbox.id}: {what} is more than {EXEC_BYTES} bytes")
        return done.stdout


def restoring(changes: bytes) -> Command:
    """Puts changes into a program's folder that is as in the commit."""
    return Command((*_BASH, _APPLY), cwd=PROGRAM, stdin=changes, timeout_s=_ASK_S)
