"""Run git so that it starts no hook, filter or helper, asks no question and touches only what its arguments name."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from evolverpc_common.shielded import await_shielded

LOCAL_TIMEOUT_S = 300.0
"""Seconds for a command that reaches no other machine."""

REPOSITORY_VARIABLES = (
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"),
    *("GIT_OBJECT_DIRECTORY", "GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_GRAFT_FILE"),
    *("GIT_INDEX_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS", "GIT_QUARANTINE_PATH"),
    *("GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_ATTR_SOURCE"),
)
"""Variables about one repository, which a process inherits if a hook started it."""

_SETTINGS = {
    "core.hooksPath": "/dev/null",  # a hook may be a file that an agent wrote
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "protocol.ext.allow": "never",
    "diff.submodule": "short",
    "log.showSignature": "false",  # the signature would stand between the lines that are read
    "safe.bareRepository": "explicit",  # a bare repository that was committed as files is not one
}

_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",  # an empty answer to every question
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}

_NO_NETWORK = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",  # a partial clone would fetch by commands that its configuration names
}

_INHERITED = frozenset(
    {
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
    }
)
"""The user's `GIT_` variables that git keeps: where it is installed and configured, and how it reaches other hosts."""

_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}
_PATTERN = re.compile(r"[*?\[\]\\ ]")
"""Characters that mean something else in a pattern of `info/exclude`."""

_NAMES_AS_TYPED = {"GIT_LITERAL_PATHSPECS": "0"}
"""`git check-ignore` refuses literal pathspecs, and reads none of its names as a pattern."""

_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_THREADS = ThreadPoolExecutor(32, thread_name_prefix="git")
"""They wait for git, of their own because a fetch may take long."""


class GitError(Exception):
    """Git failed. The message is git's own, on one line. `stderr`: all of it. `output`: what git wrote to stdout."""

    def __init__(self, message: str, *, stderr: str = "", output: bytes = b"") -> None:
        super().__init__(message)
        self.stderr = stderr
        self.output = output


class GitTimeout(GitError):
    """Git was killed because it took too long. Whether it had an effect is unknown."""


def filters_off(names: Iterable[str]) -> dict[str, str]:
    """Return settings that turn off every filter among configured settings, given by their full names.

    A filter is a command that may run files of the working tree.
    """
    drivers = {name.rpartition(".")[0] for name in names if name.startswith("filter.")}
    return {f"{driver}.{key}": value for driver in drivers for key, value in _NO_FILTER.items()}


def config_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as variables for git, which allow any character in a name. Later settings win."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for number, (name, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def git_environment(
    settings: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None, *, network: bool = False
) -> dict[str, str]:
    """Return a whole environment for git: this process's, restricted, with `settings` and `variables` added.

    What a process inherits about one repository, and trace files, are left out. `network`: git may reach other
    repositories.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or not (name.startswith("GIT_") or name == "SSH_ASKPASS")
    }
    restricted = {} if network else _NO_NETWORK
    configured = config_variables({**_SETTINGS, **(settings or {})})
    return {**inherited, **_ENVIRONMENT, **restricted, **configured, **(variables or {})}


def alternate_objects(folder: str) -> dict[str, str]:
    """Return variables with which git also reads this object folder."""
    quoted = folder.replace("\\", "\\\\").replace('"', '\\"')  # unquoted, it would end at a colon
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def failure(command: str, status: int, stderr: bytes, output: bytes = b"") -> GitError:
    """Return the error for a command that exited with another status than 0; passwords in URLs are replaced."""
    text = _USERINFO.sub("***@", stderr.decode("utf-8", "replace").strip())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("hint:", "From "))]
    message = "; ".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in lines)
    return GitError(message or f"git {command} exited with status {status}", stderr=text, output=output)


def run_git(
    *arguments: str,
    folder: Path,
    stdin: bytes = b"",
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    network: bool = False,
    timeout_s: float | None = LOCAL_TIMEOUT_S,
) -> bytes:
    """Run git in a folder, and return what it writes to stdout. Blocks.

    `settings`, `variables`: in addition to the common ones. `network`: git may reach other repositories.

    Raises:
        GitTimeout: it took longer than `timeout_s` seconds; it was killed with everything that it started.
        GitError: it failed, or is not installed.
    """
    process = _started(arguments, folder, git_environment(settings, variables, network=network))
    return _finished(process, arguments[0], stdin, timeout_s)


class Git:
    """Git on the repository of a folder, with settings and variables of its own.

    Methods block, raise as `run_git`, and may be called from several threads.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        network: bool = False,
        timeout_s: float | None = LOCAL_TIMEOUT_S,
    ) -> None:
        self._folder = folder
        self._settings = dict(settings or {})
        self._variables = dict(variables or {})
        self._network = network
        self._timeout_s = timeout_s

    def __call__(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Return what the command writes to stdout. `variables`, `timeout_s`: for this command."""
        return run_git(
            *map(str, arguments),
            folder=self._folder,
            stdin=stdin,
            settings=self._settings,
            variables={**self._variables, **(variables or {})},
            network=self._network,
            timeout_s=timeout_s or self._timeout_s,
        )

    def within(
        self,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the same with this working directory, and further variables and settings."""
        return type(self)(
            folder or self._folder,
            settings={**self._settings, **(settings or {})},
            variables={**self._variables, **(variables or {})},
            network=self._network,
            timeout_s=self._timeout_s,
        )

    def line(self, *arguments: str | Path, stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> str:
        """Return what is written, without its last newline."""
        return self(*arguments, stdin=stdin, variables=variables).decode("utf-8", "surrogateescape").rstrip("\n")

    def fields(
        self, *arguments: str | Path, stdin: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the fields that a command with `-z` separates or ends by NUL."""
        text = self(*arguments, stdin=stdin, variables=variables).decode("utf-8", "surrogateescape")
        return text.removesuffix("\0").split("\0") if text else []

    def has(self, commit: str) -> bool:
        """Report whether the repository has this commit, by its full id."""
        return self.line("cat-file", "--batch-check", stdin=f"{commit}\n".encode()).startswith(f"{commit} commit ")

    def refs(self, below: str) -> dict[str, str]:
        """Return the ids at the ref of this full name and at those below it, by full names."""
        text = self.line("for-each-ref", "--format=%(refname) %(objectname)", below)
        found = (line.partition(" ") for line in text.split("\n") if line)  # names may have other ends of lines
        return {name: commit for name, _, commit in found}

    def update_refs(self, commands: Iterable[str]) -> None:
        """Apply all of these changes of refs, as `git update-ref` reads them, or none."""
        self("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in commands).encode())

    def changed(self) -> list[str]:
        """Return the tracked paths that differ from HEAD in the working tree or the index."""
        output = ("--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
        return [entry[3:] for entry in self.fields("status", *output)]

    def objects(self, ids: Iterable[str], variables: Mapping[str, str] | None = None) -> dict[str, bytes]:
        """Return the contents of objects by their full ids."""
        wanted = dict.fromkeys(ids)
        asked = "".join(f"{each}\n" for each in wanted).encode()
        return dict(zip(wanted, read_batch(self("cat-file", "--batch", stdin=asked, variables=variables)), strict=True))


def read_batch(output: bytes) -> Iterator[bytes]:
    """Yield the contents of the objects that `git cat-file --batch` printed, in order."""
    at = 0
    while at < len(output):
        start = output.index(b"\n", at) + 1
        size = int(output[at:start].split()[2])
        yield output[start : start + size]
        at = start + size + 1


def exclude_from_git(file: Path) -> Path | None:
    """Have git ignore a file of a working tree, by a line in its `info/exclude`; return the path of that.

    None if nothing was written: the file is in no working tree that git accepts, or ignored already. Blocks.

    Raises:
        OSError: `info/exclude` cannot be written.
        GitError: a line of a `.gitignore` includes the file, which overrides `info/exclude`; nothing was written.
    """
    try:
        answer = run_git("rev-parse", "--show-toplevel", "--git-path", "info/exclude", folder=file.parent)
    except GitError:
        return None
    top, exclude = (Path(os.fsdecode(line)) for line in answer.splitlines())
    if _is_ignored(file):
        return None
    exclude = Path(os.path.normpath(file.parent / exclude))
    exclude.parent.mkdir(parents=True, exist_ok=True)
    inside = (file.parent.resolve() / file.name).relative_to(top.resolve()).as_posix()
    with exclude.open("a", encoding="utf-8", errors="surrogateescape") as lines:
        size = lines.tell()
        lines.write(f"\n/{_PATTERN.sub(lambda found: chr(92) + found[0], inside)}\n")
    if not _is_ignored(file):
        os.truncate(exclude, size)
        raise GitError(f"a line of a .gitignore that begins with ! includes {file.name}")
    return exclude


def _is_ignored(file: Path) -> bool:
    try:
        run_git("check-ignore", "--quiet", "--", f"./{file.name}", folder=file.parent, variables=_NAMES_AS_TYPED)
    except GitError:
        return False
    return True


def ssh_variables(folder: Path) -> dict[str, str]:
    """Return variables with which ssh asks nothing; none if the user names a command for ssh. Raises `GitError`."""
    if {"GIT_SSH", "GIT_SSH_COMMAND"} & os.environ.keys():
        return {}
    named = run_git("config", "--default=", "--get", "core.sshCommand", folder=folder).strip()
    return {} if named else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20"}


async def run_git_async(
    *arguments: str,
    folder: Path,
    stdin: bytes = b"",
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    network: bool = False,
    timeout_s: float = LOCAL_TIMEOUT_S,
) -> bytes:
    """Run git as `run_git` does, without blocking; a cancellation kills git first. Raises as `run_git`."""
    loop = asyncio.get_running_loop()
    ssh = await loop.run_in_executor(_THREADS, ssh_variables, folder) if network else {}
    process = _started(arguments, folder, git_environment(settings, {**ssh, **(variables or {})}, network=network))
    finishing = loop.run_in_executor(_THREADS, _finished, process, arguments[0], stdin, timeout_s)
    try:
        return await asyncio.shield(finishing)
    except asyncio.CancelledError:
        _kill_session(process.pid)
        await await_shielded(asyncio.wait([finishing]))
        raise


def _started(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603  git itself, no shell
            ["git", *arguments],  # noqa: S607  the user's git
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename == "git":
            raise GitError("git is not installed, or not on the PATH: install it, and try again") from None
        raise GitError(f"git cannot be run: {error}") from None


def _finished(process: "subprocess.Popen[bytes]", command: str, stdin: bytes, timeout_s: float | None) -> bytes:
    """Wait for git, and end all that it started. Blocks. Raises as `run_git`."""
    with process:
        try:
            output, stderr = process.communicate(stdin, timeout_s)
        except subprocess.TimeoutExpired:
            raise GitTimeout(f"git {command} took longer than {timeout_s:g} s") from None
        finally:
            _kill_session(process.pid)
    if process.returncode != 0:
        raise failure(command, process.returncode, stderr, output)
    return output


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
