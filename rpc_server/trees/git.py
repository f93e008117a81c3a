"""Git, run so that it touches nothing but what it is told to: no hook, no index or HEAD of the user's, no question."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from rpc_server.programs.launch import OF_ONE_REPOSITORY

_SAFE = {
    "core.hooksPath": "/dev/null",  # a hook is the user's, for what the user does
    "core.fsmonitor": "false",
    "core.autocrlf": "false",  # files in a tree are those of the commit
    "core.safecrlf": "false",
    "core.quotePath": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "commit.gpgSign": "false",
    "fetch.fsckObjects": "true",  # what comes in a bundle was made elsewhere
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "protocol.ext.allow": "never",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "log.showSignature": "false",  # it would stand between the lines that are read
}

_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}


class GitError(Exception):
    """Git refused; the message is its own words. `output`: what it had written by then."""

    def __init__(self, message: str, output: bytes = b"") -> None:
        super().__init__(message)
        self.output = output


class GitTimeout(GitError):
    """Git was ended because it was not done in time; whether it had done by then what it was for is not known."""


class Git:
    """Runs git on one repository. `git_dir`: its common folder of objects and refs; None to find out which.

    Every call is a process of its own; calls may be made from several threads.
    """

    def __init__(self, folder: Path, git_dir: Path | None = None) -> None:
        self._folder = folder
        self._git_dir = git_dir

    def __call__(
        self,
        *arguments: str | Path,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """What the command writes to its stdout.

        `env` is added to the environment. `folder`: where it runs, when not in the repository's own. `timeout_s`: after
        which it is ended, with all that it started.

        Raises:
            GitTimeout: it took longer.
            GitError: it exits with another status than 0, or git is not installed.
        """
        from git import Git as Runner  # a tenth of a second, which a server without trees need not wait for
        from git import GitCommandNotFound

        settings = [word for name, value in _SAFE.items() for word in ("-c", f"{name}={value}")]
        environment = {**_ENVIRONMENT, **(env or {})}
        if self._git_dir is not None:
            environment["GIT_DIR"] = str(self._git_dir)
        # A variable can be set for a process that GitPython starts, not taken away.
        unwanted = [name for name in OF_ONE_REPOSITORY if name in os.environ and name not in environment]
        without = ["env", *(word for name in unwanted for word in ("-u", name))] if unwanted else []
        command = [*without, "git", *settings, *(str(argument) for argument in arguments)]
        with tempfile.TemporaryFile() as given:
            if stdin is not None:
                given.write(stdin)
                given.seek(0)
            try:
                running = Runner(str(folder or self._folder)).execute(
                    command, istream=given, as_process=True, env=environment, start_new_session=timeout_s is not None
                )
            except GitCommandNotFound:
                raise GitError("git is not installed, or not on the PATH") from None
            with cast("subprocess.Popen[bytes]", running.proc) as process:
                try:
                    output, said = process.communicate(timeout=timeout_s)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)  # GitPython would need `ps` to find what it started
                    raise GitTimeout(f"git {arguments[0]} was not done in {timeout_s:g} s") from None
        if process.returncode != 0:
            raise GitError(_told(said) or f"git {arguments[0]} exited with status {process.returncode}", output)
        return output

    def line(self, *arguments: str | Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        """The one line it writes, without its newline; raises as a call does."""
        return self(*arguments, stdin=stdin, env=env).decode("utf-8", "surrogateescape").rstrip("\n")

    def fields(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> list[str]:
        """What it writes between NULs, for commands with `-z`; raises as a call does."""
        text = self(*arguments, env=env).decode("utf-8", "surrogateescape")
        return text.split("\0")[:-1] if text else []


def _told(said: bytes) -> str:
    """Git's own words in one line, without `fatal:` and hints."""
    lines = [
        line.strip()
        for line in said.decode("utf-8", "replace").splitlines()
        if line.strip() and not line.startswith(("hint:", "From "))
    ]
    return "; ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in lines)
