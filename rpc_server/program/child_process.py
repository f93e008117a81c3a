"""A child process: its pipes, its exit, and the end of its whole process group."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Exit:
    """How a process ended: exit status, or minus the signal that killed it; None if unknown.

    `parent_died`: it ended because the process it was forked from did.
    """

    status: int | None
    parent_died: bool = False
    message: str = ""

    def __str__(self) -> str:
        if self.message:
            return self.message
        if self.status is None:
            return "ended with the process it was forked from" if self.parent_died else "ended"
        if self.status >= 0:
            return f"exited with status {self.status}"
        try:
            return f"was killed by {signal.Signals(-self.status).name}"
        except ValueError:
            return f"was killed by signal {-self.status}"


class Child(Protocol):
    """A started process."""

    def kill(self) -> None:
        """Kill it and its process group; do nothing if it has ended."""
        ...

    def watch(self, on_exit: Callable[[Exit], None]) -> None:
        """Call `on_exit` once, when it has ended. To be called once."""
        ...


class Pipes:
    """The three pipes between the server and a child. The server's ends do not block.

    Raises:
        OSError: no more descriptors are available.
    """

    def __init__(self) -> None:
        made: list[int] = []
        try:
            for _ in range(3):
                made += os.pipe()
        except OSError:
            for descriptor in made:
                os.close(descriptor)
            raise
        self.child_stdin, self.stdin, self.stdout, self.child_stdout, self.stderr, self.child_stderr = made
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)

    @property
    def child_ends(self) -> tuple[int, int, int]:
        """The child's ends: stdin, stdout, stderr."""
        return self.child_stdin, self.child_stdout, self.child_stderr

    def close_child_ends(self) -> None:
        """Close the child's ends, once it has them."""
        for descriptor in self.child_ends:
            os.close(descriptor)

    def close_own_ends(self) -> None:
        """Close the server's ends, if no process was started."""
        for descriptor in (self.stdin, self.stdout, self.stderr):
            os.close(descriptor)


class SpawnedChild:
    """A process started from a command, leading its own session.

    It is reaped on the event loop after its group has been killed, so that its pid is never reused while in use.
    """

    def __init__(
        self,
        command: Sequence[str],
        pipes: Pipes,
        *,
        cwd: Path,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        jailed: bool = False,
    ) -> None:
        """Start it. `jailed`: its status is in shells' notation. Raises `OSError`."""
        self._jailed = jailed
        stdin, stdout, stderr = pipes.child_ends
        self._process = subprocess.Popen(  # noqa: S603  # starting the user's program is the purpose
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(env),
            pass_fds=pass_fds,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill it and its process group."""
        if self._process.returncode is None:
            _kill_group(self._process.pid)

    def watch(self, on_exit: Callable[[Exit], None]) -> None:
        """Call `on_exit` once, when it has ended."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel without it
            self._watch_in_thread(loop, on_exit)
            return

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            _kill_group(self._process.pid)
            on_exit(self._exit(self._process.wait()))

        loop.add_reader(descriptor, ended)

    def _watch_in_thread(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[Exit], None]) -> None:
        def wait() -> None:
            status = self._process.wait()
            _kill_group(self._process.pid)
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_exit, self._exit(status))

        threading.Thread(target=wait, name="child-exit", daemon=True).start()

    def _exit(self, status: int) -> Exit:
        if self._jailed and status - 128 in list(signal.Signals):
            return Exit(128 - status)
        return Exit(status)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # none of them is left
