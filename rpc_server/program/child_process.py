"""A child process of the server: its pipes, its exit, and its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Exit:
    """How a process ended: exit status, or minus the signal that killed it; None if unknown, or if the server ends it.

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
        child_stdin, self.stdin, self.stdout, child_stdout, self.stderr, child_stderr = made
        self.child_ends = (child_stdin, child_stdout, child_stderr)
        self.own_ends = (self.stdin, self.stdout, self.stderr)
        for descriptor in self.own_ends:
            os.set_blocking(descriptor, False)

    def close_child_ends(self) -> None:
        """Close the child's ends, once it has them."""
        for descriptor in self.child_ends:
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
    ) -> None:
        """Start it, and close the child's ends of the pipes.

        Raises:
            OSError: it cannot be started; all of the pipes are closed.
        """
        stdin, stdout, stderr = pipes.child_ends
        try:
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
        except OSError:
            for descriptor in pipes.own_ends:
                os.close(descriptor)
            raise
        finally:
            pipes.close_child_ends()

    def terminate(self) -> None:
        """Request its end (SIGTERM)."""
        if self._process.returncode is None:  # not reaped, so that the pid is its own
            os.kill(self._process.pid, signal.SIGTERM)

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
            on_exit(_exit_of(self._process.wait()))

        loop.add_reader(descriptor, ended)

    def _watch_in_thread(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[Exit], None]) -> None:
        def wait() -> None:
            status = self._process.wait()
            _kill_group(self._process.pid)
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_exit, _exit_of(status))

        threading.Thread(target=wait, name="child-exit", daemon=True).start()


def _exit_of(status: int) -> Exit:
    """Return the exit with this status; 128 + signal is that of a jail or a shell whose command a signal killed."""
    return Exit(128 - status if status - 128 in list(signal.Signals) else status)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # none of them is left


_KILL_WAIT_S = 2.0
"""Seconds to wait for the exit of a killed process."""

_CHUNK = 1 << 18
_LOG_CHUNK = 1 << 16
_DRAIN_CHUNKS = 64


class ChildProcess:
    """A child and the server's ends of its pipes. Nothing here blocks: its output and its exit arrive as callbacks.

    `kill`: kills it and its process group; what started it calls `ended` with its exit.
    `on_output` gets what it wrote to stdout, empty once it has closed that, `on_log` what it wrote to stderr, likewise,
    and `on_end` its end, after everything that it wrote.
    """

    def __init__(
        self,
        kill: Callable[[], None],
        pipes: Pipes,
        *,
        on_output: Callable[[bytes], None],
        on_log: Callable[[bytes], None],
        on_end: Callable[[Exit], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kill = kill
        self._pipes = pipes
        self._on_output, self._on_log, self._on_end = on_output, on_log, on_end
        self._unsent = bytearray()
        self._ends_input = False
        self._open = {*pipes.own_ends}
        self.alive = True
        """False as soon as its exit is known, before `exited` is set."""
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        self._loop.add_reader(pipes.stdout, self._read, pipes.stdout, _CHUNK, on_output)
        self._loop.add_reader(pipes.stderr, self._read, pipes.stderr, _LOG_CHUNK, on_log)

    def write(self, data: bytes) -> None:
        """Send bytes, buffering what the pipe does not accept yet."""
        if self._pipes.stdin in self._open:
            self._unsent += data
            self._write_more()

    def _write_more(self) -> None:
        try:
            sent = os.write(self._pipes.stdin, memoryview(self._unsent)[:_CHUNK])
        except BlockingIOError:
            sent = 0
        except OSError:  # it reads no more: its exit is about to be noticed
            sent = len(self._unsent)
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._pipes.stdin, self._write_more)
            return
        self._loop.remove_writer(self._pipes.stdin)
        if self._ends_input:
            self._close(self._pipes.stdin)

    def end_input(self) -> None:
        """Close its stdin once all is sent, which asks it to exit."""
        self._ends_input = True
        if not self._unsent:
            self._close(self._pipes.stdin)

    def kill(self) -> None:
        """Kill it and its process group; do nothing if it has ended."""
        if self.alive:
            self._kill()

    async def end(self, *, grace_s: float) -> None:
        """Close its stdin, kill it after `grace_s`, and wait for its exit for a few seconds at most."""
        self.end_input()
        done, _ = await asyncio.wait({self.exited}, timeout=grace_s)
        if not done:
            self.kill()
            await asyncio.wait({self.exited}, timeout=_KILL_WAIT_S)

    def collect_output(self) -> None:
        """Take what it has written to stderr until now."""
        self._drain(self._pipes.stderr, self._on_log)

    def _read(self, descriptor: int, size: int, take: Callable[[bytes], None]) -> bool:
        """Read one chunk; return False if there is none now."""
        try:
            data = os.read(descriptor, size)
        except BlockingIOError:
            return False
        if not data:
            self._close(descriptor)
        take(data)
        return bool(data)

    def _drain(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        for _ in range(_DRAIN_CHUNKS):  # a process that never stops writing must not keep us here
            if descriptor not in self._open or not self._read(descriptor, _CHUNK, take):
                return

    def ended(self, status: Exit) -> None:
        """Take its exit; do nothing if that is known."""
        if not self.alive:
            return
        self.alive = False
        # The pipes still hold what it wrote before its exit.
        self._drain(self._pipes.stdout, self._on_output)
        self.collect_output()
        self._on_end(status)
        for descriptor in tuple(self._open):
            self._close(descriptor)
        if not self.exited.done():
            self.exited.set_result(status)

    def _close(self, descriptor: int) -> None:
        if descriptor not in self._open:
            return
        self._open.discard(descriptor)
        with contextlib.suppress(ValueError):
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        os.close(descriptor)
