"""What a client runs in its sandbox besides the server: scripts and prebuilt commands."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_runtime.api.spec import Command

BIN = "bin"
"""The folder of a workspace that prebuilt commands are in; runtimes put it first on `PATH` of all that runs there."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_ADD_S = 60.0

_ADD = 'mkdir -p "$1"; cat > "$1/.$2"; chmod 755 "$1/.$2"; mv -f "$1/.$2" "$1/$2"'
_LINK = (
    'test ! -e "$2/node_modules" || exit 0; ln -s "$1" "$2/node_modules";'
    ' mkdir -p "$3/.git/info"; echo node_modules >> "$3/.git/info/exclude"'
)


@dataclass(frozen=True)
class Prebuilt:
    """An executable that an optimizer brings along. `script`: the file's content, with its `#!` line.

    Raises:
        ValueError: the name is none for a command.
    """

    name: str
    script: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be the name of a command: letters, digits, and . _ + - after the first"
            )

    def adding(self) -> Command:
        """Puts it in the workspace, in place of one of the same name."""
        return Command(("sh", "-ec", _ADD, "sh", BIN, self.name), stdin=self.script, timeout_s=_ADD_S)


def bash(script: str, cwd: str, timeout_s: float, env: Mapping[str, str] | None) -> Command:
    """Runs a script in a folder of the workspace."""
    return Command(("bash", "-c", script), cwd=cwd, timeout_s=timeout_s, env=dict(env or {}))


def linking(modules: str, folder: str, top: str) -> Command:
    """Links Node's packages to a program's folder that has none; git, at `top`, is told to leave the link alone."""
    return Command(("sh", "-ec", _LINK, "sh", modules, folder, top))
