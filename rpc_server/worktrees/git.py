"""Git, run so that it touches only what its arguments name: no hook, filter or driver, no user's index, no question."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from rpc_server.program.launch import OF_ONE_REPOSITORY

_SAFE = {
    "core.hooksPath": "/dev/null",  # a hook may be a file that an agent wrote
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
    "diff.submodule": "short",
    "log.showSignature": "false",  # it would stand between the lines that are read
}

_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}
_MERGE_AS_TEXT = "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B"
"""What git does itself where no driver is configured; without a command the driver would be an error."""

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


def without_programs(names: Iterable[str]) -> dict[str, str]:
    """Settings under which git runs none of the filters and merge drivers that these settings, by name, configure.

    Their commands run in a tree, so they may run or import files that an agent wrote.
    """
    off: dict[str, str] = {}
    for name in names:
        driver = name.rpartition(".")[0]
        if driver.startswith("filter."):
            off |= {f"{driver}.{what}": value for what, value in _NO_FILTER.items()}
        elif driver.startswith("merge.") and name.endswith(".driver"):
            off[name] = _MERGE_AS_TEXT
    return off


class Git:
    """Runs git on one repository. `git_dir`: its common folder of objects and refs; None to find out which.

    `settings` come before the user's. Every call is a process of its own; calls may be made from several threads.
    """

    def __init__(self, folder: Path, git_dir: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._git_dir = git_dir
        self._settings = _as_variables(settings or {})

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
        environment = {**_ENVIRONMENT, **self._settings, **(env or {})}
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


def _as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """As git takes settings whose names may have any character in them."""
    if not settings:
        return {}
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _told(said: bytes) -> str:
    """Git's own words in one line, without `fatal:` and hints."""
    lines = [
        line.strip()
        for line in said.decode("utf-8", "replace").splitlines()
        if line.strip() and not line.startswith(("hint:", "From "))
    ]
    return "; ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in lines)
