"""Which folders of the repository the user's Python imports from, so that a tree's program imports the tree's own.

An environment often holds the project itself as an editable install: a link to the user's folder. Left alone it would
have every commit run the files that are checked out there.
"""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePath

from rpc_server.jail.jail import Cell
from rpc_server.program.launch import environment
from rpc_server.settings.settings import Settings

# What setuptools installs editable may be on no path: a finder knows where each package is.
_ASK = """
import json, os, sys
finders = [module for name, module in list(sys.modules.items()) if name.startswith("__editable__")]
places = [place for finder in finders for place in getattr(finder, "MAPPING", {}).values()]
print()
print(json.dumps([path for path in sys.path if path] + [os.path.dirname(place) for place in places]))
"""


def import_paths(
    settings: Settings, interpreter: Path, top: Path, tracked: Iterable[str], cell: Cell | None
) -> tuple[str, ...]:
    """Folders as seen from the repository's `top`, first the one that is looked into first; `""` is `top` itself.

    Only those with files of `tracked` in them: an environment that lies in the repository is none of its code. Empty
    where the interpreter cannot be asked: the program's start says better what is the matter with it.
    """
    holding = {str(folder) for path in tracked for folder in PurePath(path).parents}
    asked = _asked(settings, interpreter, cell)
    inside = (os.path.relpath(os.path.realpath(path), os.path.realpath(top)) for path in asked)
    return tuple(dict.fromkeys("" if path == os.curdir else path for path in inside if path in holding))


def _asked(settings: Settings, interpreter: Path, cell: Cell | None) -> list[str]:
    command: tuple[str, ...] = (str(interpreter), "-B", "-c", _ASK)
    if cell is not None:
        command = cell.jailed(command, folder=settings.root, environment=environment(settings))
    try:
        told = subprocess.run(  # noqa: S603  # the user's interpreter, which is to run the program
            command,
            cwd=settings.root,
            env=environment(settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=settings.start_timeout_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found: list[str] = json.loads(told.stdout.splitlines()[-1])
    return found
