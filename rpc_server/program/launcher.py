"""Start program processes: the interpreter, the environment, and a launcher for commands."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evolverpc_common.git import REPOSITORY_VARIABLES
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.child_process import Pipes, SpawnedChild
from rpc_server.program.process import ProgramProcess
from rpc_server.settings.settings import Settings


@dataclass(frozen=True)
class Interpreter:
    """A Python executable, and the reason for its choice."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def find_interpreter(settings: Settings) -> Interpreter:
    """Return the setting `python`, else the project's `.venv`, the active environment, `python3`, or our own."""
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
    # Not resolved: the interpreter of an environment is a link, whose location matters.
    return Path(os.path.abspath(path))  # noqa: PTH100  # as above


WORKER_FOLDER = Path(__file__).parents[1] / "worker"
_DIE_WITH_SERVER = WORKER_FOLDER / "parent_death.py"

SECRETS = ("GEPA_TOKEN", "GEPA_LISTEN", "GEPA_ALLOWED_HOSTS")
"""Variables that the program does not get."""

STDIO_VARIABLE = "GEPA_STDIO"
"""Set for a command that the server talks to over stdio, so that one meant for HTTP can fail at once."""


class Launcher(Protocol):
    """Starts program processes, any number at the same time."""

    async def launch(self) -> ProgramProcess:
        """Start one. Cancelling leaves nothing behind.

        Raises:
            ProgramFailed: it cannot be started; `stage`, `message`, `log_tail`, `traceback` and `interpreter` as known.
        """
        ...

    async def close(self) -> None:
        """End its processes that still run."""
        ...


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of the program's processes: the server's without secrets, and `settings.env`."""
    # A program whose code evolves runs elsewhere than in the repository that such a variable names.
    withheld = (*SECRETS, *REPOSITORY_VARIABLES) if settings.has_trees else SECRETS
    return {**{name: value for name, value in os.environ.items() if name not in withheld}, **settings.env}


class CommandLauncher:
    """Starts the command anew each time."""

    def __init__(self, command: tuple[str, ...], *, root: Path, env: dict[str, str], jail: Jail | None = None) -> None:
        self._command = command
        self._root = root
        self._jail = jail
        self._env = {**env, STDIO_VARIABLE: "1"}

    async def launch(self) -> ProgramProcess:
        """Start the command."""
        name = self._command[0]
        search = self._root / name if os.sep in name else name
        if shutil.which(search, path=self._env.get("PATH")) is None:
            raise ProgramFailed(f"there is no command {name!r}", stage="start", log_tail="")
        pipes = Pipes()
        command = self._command
        if self._jail is not None:
            command = self._jail.wrap(command, folder=self._root, environment=self._env)
        # Through a small program that requests the parent-death signal and then executes the command.
        command = (sys.executable, "-I", "-S", str(_DIE_WITH_SERVER), *command)
        try:
            child = SpawnedChild(command, pipes, cwd=self._root, env=self._env, jailed=self._jail is not None)
        except OSError as error:
            pipes.close_own_ends()
            raise ProgramFailed(f"cannot start {name!r}: {error.strerror}", stage="start", log_tail="") from error
        finally:
            pipes.close_child_ends()
        return ProgramProcess(child, pipes)

    async def close(self) -> None:
        """Do nothing: callers end the processes they got."""
