"""Which Python runs the user's program."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rpc_server.settings.settings import Settings


@dataclass(frozen=True)
class Interpreter:
    """A Python executable, and how it came to be chosen, in words."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def find_interpreter(settings: Settings) -> Interpreter:
    """The setting `python`, else the project's `.venv`, the active environment, `python3` on the PATH, our own."""
    if settings.python is not None:
        return Interpreter(_absolute(settings.root / settings.python), "the setting `python`")
    in_project = settings.root / ".venv" / "bin" / "python"
    if in_project.is_file():
        return Interpreter(_absolute(in_project), f"the .venv in {settings.root}")
    active = os.environ.get("VIRTUAL_ENV")
    if active and (in_active := Path(active) / "bin" / "python").is_file():
        return Interpreter(_absolute(in_active), "the active environment")
    on_path = shutil.which("python3")
    if on_path is not None:
        return Interpreter(_absolute(Path(on_path)), "python3 on the PATH")
    return Interpreter(Path(sys.executable), "the server's own")


def _absolute(path: Path) -> Path:
    # Not resolved: an environment's interpreter is a link, and is told apart by where the link stands.
    return Path(os.path.abspath(path))  # noqa: PTH100  # as above
