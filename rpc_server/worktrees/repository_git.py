"""Run git on the server's repository, restricted as `evolverpc_common.git` does, and without merge drivers."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import Self, cast

from evolverpc_common.git import (
    GitError,
    GitTimeout,
    failure,
    filters_off,
    git_variables,
    unwanted_variables,
)

_SETTINGS = {
    "core.autocrlf": "false",  # a worktree has the commit's exact bytes
    "core.safecrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.logAllRefUpdates": "false",
    "commit.gpgSign": "false",
    "fetch.fsckObjects": "true",  # bundles are made on other machines
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
}
"""In addition to the common settings, for worktrees that hold exactly the bytes of a commit."""

_MERGE_AS_TEXT = "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B"
"""Git's own merge if no driver is configured; without a command the driver would be an error."""


def drivers_off(names: Iterable[str]) -> dict[str, str]:
    """Return settings that turn off the filters and merge drivers among configured settings, by their full names.

    Their commands run in a tree, so they may run or import files that an agent wrote.
    """
    names = list(names)
    drivers = (name for name in names if name.startswith("merge.") and name.endswith(".driver"))
    return filters_off(names) | dict.fromkeys(drivers, _MERGE_AS_TEXT)


class Git:
    """Runs git on one repository. `git_dir`: its common folder of objects and refs; None to discover it.

    `settings` override the user's. Every call starts a process; calls may come from several threads.
    """

    def __init__(self, folder: Path, git_dir: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._git_dir = git_dir
        self._variables = git_variables({**(settings or {}), **_SETTINGS}, network=True) | {"GIT_ATTR_NOSYSTEM": "1"}

    def __call__(
        self,
        *arguments: str | Path,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Return what the command writes to stdout.

        `env` is added to the environment. `timeout_s`: after which git is killed with its children.

        Raises:
            GitTimeout: it took longer.
            GitError: its exit status is not 0, or git is not installed.
        """
        from git import Git as Runner  # a tenth of a second, only for servers with worktrees
        from git import GitCommandNotFound

        environment = {**self._variables, **(env or {})}
        if self._git_dir is not None:
            environment["GIT_DIR"] = str(self._git_dir)
        # GitPython can set variables of a process, but not remove them.
        unwanted = [name for name in unwanted_variables(os.environ) if name not in environment]
        without = ["env", *(word for name in unwanted for word in ("-u", name))] if unwanted else []
        command = [*without, "git", *(str(argument) for argument in arguments)]
        with tempfile.TemporaryFile() as given:
            if stdin is not None:
                given.write(stdin)
                given.seek(0)
            try:
                running = Runner(str(self._folder)).execute(
                    command, istream=given, as_process=True, env=environment, start_new_session=timeout_s is not None
                )
            except GitCommandNotFound:
                raise GitError("git is not installed, or not on the PATH") from None
            with cast("subprocess.Popen[bytes]", running.proc) as process:
                try:
                    output, stderr = process.communicate(timeout=timeout_s)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)  # GitPython would need `ps` to find what it started
                    raise GitTimeout(f"git {arguments[0]} was not done in {timeout_s:g} s") from None
        if process.returncode != 0:
            raise failure(str(arguments[0]), process.returncode, stderr, output)
        return output

    def within(self, folder: Path, env: Mapping[str, str]) -> Self:
        """Return a runner on the same repository with this working directory and further environment."""
        other = copy(self)
        other._folder = folder
        other._variables = {**self._variables, **env}
        return other

    def line(self, *arguments: str | Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        """Return the one line written, without its newline; raises as a call does."""
        return self(*arguments, stdin=stdin, env=env).decode("utf-8", "surrogateescape").rstrip("\n")

    def fields(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> list[str]:
        """Return the fields that a command with `-z` separates or ends by NUL; raises as a call does."""
        text = self(*arguments, env=env).decode("utf-8", "surrogateescape")
        return text.removesuffix("\0").split("\0") if text else []

    def objects(self, ids: Iterable[str], env: Mapping[str, str] | None = None) -> dict[str, bytes]:
        """Return the contents of objects by their full ids; raises as a call does."""
        wanted = dict.fromkeys(ids)
        output = self("cat-file", "--batch", stdin="".join(f"{each}\n" for each in wanted).encode(), env=env)
        found = {}
        at = 0
        for each in wanted:
            start = output.index(b"\n", at) + 1
            size = int(output[at:start].split()[2])
            found[each] = output[start : start + size]
            at = start + size + 1
        return found
