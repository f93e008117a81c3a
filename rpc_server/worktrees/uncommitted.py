"""Files that the settings name and the commit has not, for which a program may not start."""

import os
import re
from collections.abc import Collection
from pathlib import Path

from protocol.errors import ProgramFailed
from rpc_server.settings.settings import Settings


def explained(
    error: ProgramFailed, settings: Settings, tracked: Collection[str], prefix: str, state: Path
) -> ProgramFailed:
    """The error, with what to do where the program, or a file that its command names, is in `root` alone.

    `state`: the folder that trees are in, of which users know nothing.
    """
    missing = [name for name in _named(settings) if _is_missing(name, settings, tracked, prefix)]
    if not missing:
        return error
    names, are = " ".join(missing), "is" if len(missing) == 1 else "are"
    advice = f"{names} {are} not committed, and candidates run from commits: git add {names} && git commit"
    said = re.sub(re.escape(str(state)) + r"/trees/[^/]+/files/?", "", error.message)
    details = {name: value for name, value in error.details.items() if name != "message"}
    return ProgramFailed(f"{said}; {advice}", retryable=error.retryable, **details)


def _named(settings: Settings) -> list[str]:
    """Paths from `root` of what may be files of the program; the first word of a command may be the user's own."""
    words = [*(settings.command or ())[1:]]
    if settings.program is not None and settings.program.endswith(".py"):
        words.append(settings.program)
    if isinstance(settings.seed_candidate, Path):
        words.append(str(settings.seed_candidate))
    return [os.path.relpath(settings.root / word, settings.root) for word in words]


def _is_missing(name: str, settings: Settings, tracked: Collection[str], prefix: str) -> bool:
    path = Path(name)
    linked = any(path.is_relative_to(link) for link in settings.links)
    outside = path.parts[:1] == ("..",)
    inside = (Path(prefix) / path).as_posix()
    return not linked and not outside and (settings.root / path).is_file() and inside not in tracked
