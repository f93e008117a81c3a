"""One environment while it is built: a folder, and the commands that are run in it one after the other."""

import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox_runtime.api.sandbox import NotPrepared
from sandbox_runtime.environments.built import Run
from sandbox_runtime.environments.disk import BUILD_MB, within
from sandbox_runtime.environments.places import discard
from sandbox_runtime.environments.variables import build_variables, holds_password, readable_by

BUILD_S = 1800.0
"""Seconds that one command may take."""

FILES = "files"
"""The folder of the site that holds the recipe's files."""

_SCRATCH = "scratch"
_NO_SCRIPTS_HINT = (
    "\nthe address of the package index or proxy holds a password, which build scripts could read, so nothing is built "
    "from source: provide wheels, or an address without a password"
)
_TOLD_BYTES = 4096


@dataclass(frozen=True)
class Site:
    """The folder that is built in.

    Once a command of somebody's has run here, nothing in it can be trusted: all that this process writes there, `make`
    writes. `most_mb`: what it may hold, in MiB.
    """

    folder: Path
    runner: Run
    told: Callable[[str], None]
    most_mb: int = BUILD_MB

    @property
    def may_build(self) -> bool:
        """Whether code of packages may run while they are installed: not where it could read a password."""
        return not holds_password(build_variables(os.environ))

    @property
    def files(self) -> Path:
        """Where the recipe's files are."""
        return self.folder / FILES

    def make(self, files: Mapping[str, bytes], folders: Iterable[str] = ()) -> None:
        """Make the folder, write the files and make folders beside them; before anything runs here.

        Raises:
            NotPrepared: a file would be outside.
        """
        for name, content in files.items():
            if name != posixpath.normpath(name) or name.startswith(("/", "../")) or name in {".", ".."}:
                raise NotPrepared(f"{name!r} cannot be the name of a file of an environment")
            file = self.files / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for needed in (self.files, self.folder / _SCRATCH, *(self.files / name for name in folders)):
            needed.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder.parent, self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())):
            folder.chmod(0o755)  # whatever the umask: a sandbox may have a user of its own

    def has(self, *names: str) -> bool:
        """Whether there is a folder of the first name, in that one of the second, and so on; no link is one. Blocks."""
        folder = self.folder
        for name in names:
            folder /= name
            if folder.is_symlink() or not folder.is_dir():
                return False
        return True

    def clean(self, kept: Collection[str]) -> None:
        """Remove everything but these folders: what only building needed, and what builds left beside. Blocks."""
        for path in self.folder.iterdir():
            if path.name not in kept:
                discard(path)

    async def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, readable: Sequence[str]) -> None:
        """Run a command here, its caches and home in the scratch folder, so that no build can spoil another's.

        Raises:
            NotPrepared: it failed, and the text has the end of what it wrote; or the folder holds too much.
        """
        scratch = str(self.folder / _SCRATCH)
        given = build_variables(os.environ)
        variables = {
            "PATH": os.defpath,
            **given,
            "HOME": scratch,
            "TMPDIR": scratch,
            "UV_CACHE_DIR": f"{scratch}/uv",
            "NPM_CONFIG_CACHE": f"{scratch}/npm",
            **(env or {}),
        }
        name = Path(argv[0]).name
        building = self.runner(argv, self.folder, variables, BUILD_S, [*readable, *readable_by(given)])
        try:
            status, output = await within(self.folder, self.most_mb, building)
        except TimeoutError:
            raise NotPrepared(f"{name} took longer than {BUILD_S:g} s to build the environment") from None
        if status != 0:
            hint = "" if self.may_build else _NO_SCRIPTS_HINT
            end = output[-_TOLD_BYTES:].decode("utf-8", "replace").strip()
            raise NotPrepared(f"the environment cannot be built: {name} exited with status {status}\n{end}{hint}")
