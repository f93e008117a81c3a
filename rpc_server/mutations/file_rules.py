"""What a mutation may change (paths, kinds of files, links, size), and its rejection."""

import contextlib
import glob
import itertools
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from typing import Literal, Self

from evolverpc_common.settings.sources import SettingsError
from protocol.errors import MutationRejected
from rpc_server.settings import Settings
from rpc_server.worktrees.repository import LINK, SUBMODULE
from rpc_server.worktrees.staged_change import NOTHING, ChangedFile

Stage = Literal["agent", "edit", "empty", "paths", "size", "environment", "build", "check", "start", "push"]


def rejected(stage: Stage, reason: str, *, log_tail: str | None = None) -> MutationRejected:
    """Return the error of a rejected mutation; `log_tail`: the end of a process's output."""
    error = MutationRejected(f"Mutation rejected ({stage}): {reason}", stage=stage, reason=reason)
    if log_tail:
        error.details["log_tail"] = log_tail
    return error


class Globs:
    """Patterns of paths from the repository's top, separated by `/`; case-sensitive.

    `*` and `?` match within one name, `[abc]`, `[a-z]` and `[!abc]` one character of it, a whole name `**` any number
    of folders. A pattern that matches a folder matches everything in it: `src`, `src/` and `src/**` are equal.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        split = {pattern: [name for name in pattern.split("/") if name not in ("", ".")] for pattern in patterns}
        self._patterns = {pattern: names for pattern, names in split.items() if names}

    def matching(self, path: str) -> str | None:
        """Return the first pattern that matches the path; None if none does."""
        parts = path.split("/")
        return next((pattern for pattern, names in self._patterns.items() if _matches(parts, names)), None)


def _matches(path: Sequence[str], names: Sequence[str]) -> bool:
    if not names:
        return True
    if names[0] == "**":
        return any(_matches(path[at:], names[1:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], names[0]) and _matches(path[1:], names[1:])


_NEVER = "(?!)"
"""What Python makes of a range that is written backwards."""

_MOST_BYTES = 4095


def link_fault(path: str, target: str) -> str | None:
    """Return why there may be no symbolic link at this path to this target; None if it leads to a place in the tree.

    `..` may only begin a target: behind the name of another link it means another folder than the text shows.
    """
    if not target or "\0" in target or len(target.encode(errors="surrogateescape")) > _MOST_BYTES:
        return "its target is no path"
    if target.startswith("/"):
        return "its target is absolute"
    names = [name for name in target.split("/") if name not in ("", ".")]
    below = [*itertools.dropwhile(lambda name: name == "..", names)]
    if ".." in below:
        return "it has a .. behind a name: write the path without it"
    if len(names) - len(below) > path.count("/"):
        return "it leads out of the repository"
    return "it leads into .git" if ".git" in map(str.lower, below) else None


TESTS = (
    *("**/tests", "**/test", "**/__tests__", "**/spec", "**/specs", "**/testdata", "**/__snapshots__"),
    *(
        "**/test_*.py",
        "**/*_test.py",
        "**/conftest.py",
        "**/pytest.ini",
        "**/.pytest.ini",
        "**/tox.ini",
        "**/noxfile.py",
    ),
    *("**/.coveragerc", "**/sitecustomize.py", "**/usercustomize.py"),
    *(
        "**/*.test.*",
        "**/*.spec.*",
        "**/jest.config.*",
        "**/vitest.config.*",
        "**/.mocharc.*",
        "**/playwright.config.*",
    ),
    *("**/*_test.go", "**/*_spec.rb"),
)
"""Globs of paths that hold or configure tests by the conventions of test runners."""

_RUN_FILES = {
    "make": ("**/Makefile", "**/makefile", "**/GNUmakefile"),
    "gmake": ("**/Makefile", "**/makefile", "**/GNUmakefile"),
    "just": ("**/justfile", "**/Justfile", "**/.justfile"),
    "task": ("**/Taskfile.yml", "**/Taskfile.yaml"),
    "rake": ("**/Rakefile",),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("**/package.json",)),
}
"""The files that a command reads its own commands from."""

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_INTERPRETER = re.compile(
    r"(python[\d.]*|node|tsx|ruby|perl|deno|uv|poetry|npx|env|time|nice|timeout|sh|bash|dash|zsh|ksh)"
)
_SEPARATOR = re.compile(r"[;&|()<>\n]+")


def check_files(command: Sequence[str], *, program: str | None, prefix: str) -> tuple[str, ...]:
    """Return globs, from the repository's top, of the files that decide whether `command` exits with 0.

    These are `TESTS`, scripts that the command names, and the files that `make`, `npm` and the like read. `program`:
    the program's own file, which is excluded. `prefix`: from the repository's top to the working directory.
    """
    own = dict.fromkeys(word for part in _parts(command) for word in _of_one(part, program, prefix))
    return (*TESTS, *own)


def _parts(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the simple commands of a command line, including those in the arguments of a shell."""
    yield command
    if command and posixpath.basename(command[0]) in _SHELLS:
        for word in command[1:]:
            for part in _SEPARATOR.split(word):
                try:
                    yield shlex.split(part)
                except ValueError:  # the separator was within quotation marks, or there is an apostrophe in a comment
                    yield part.replace('"', " ").replace("'", " ").split()
            with contextlib.suppress(ValueError):  # also names that have a separator within quotation marks
                yield shlex.split(word)


def _of_one(command: Sequence[str], program: str | None, prefix: str) -> Iterator[str]:
    for position, word in enumerate(command):
        name = posixpath.basename(word)
        if position == 0 and name in _RUN_FILES:
            yield from _RUN_FILES[name]
            return
        if word.startswith("-") or "=" in word:
            continue
        if _INTERPRETER.fullmatch(name):
            continue
        path = posixpath.normpath(posixpath.join(prefix, word))
        follows_interpreter = position == 0 or _INTERPRETER.fullmatch(posixpath.basename(command[position - 1]))
        is_script = "." in name or (os.sep in word and not word.endswith(os.sep) and follows_interpreter)
        if is_script and not path.startswith(("/", "..")) and word != program:
            yield glob.escape(path)
        return


MAX_NAME_BYTES = 255
"""The limit of file systems for one name."""

MAX_PATH_BYTES = 2000
"""For a path from the repository's top; the folder it is checked out to needs room too."""

_FILES = ("100644", "100755")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def protected_globs(settings: Settings, prefix: str) -> tuple[str, ...]:
    """Return globs of files that decide the check's outcome and so may not change; none without a check."""
    if settings.check_command is None or settings.allow_tests:
        return ()
    return check_files(settings.check_command, program=settings.program, prefix=prefix)


@dataclass(frozen=True)
class Rules:
    """The rules for a mutation's files.

    `linked`: paths where every worktree has a link to the user's files. `protected`: files that decide the check's
    outcome.
    """

    allow: Globs
    deny: Globs
    protected: Globs
    linked: Globs
    max_diff_bytes: int

    @classmethod
    def of(cls, settings: Settings, prefix: str) -> Self:
        """Return the rules of the settings; `prefix` leads from the repository's top to the settings' root.

        Raises:
            SettingsError: a glob matches nothing.
        """
        for pattern in (*settings.allow, *settings.deny):
            if _NEVER in translate(pattern):
                raise SettingsError(f"`allow` or `deny`: {pattern!r} matches nothing: write a range as [a-z]")
        return cls(
            allow=Globs(settings.allow),
            deny=Globs(settings.deny),
            protected=Globs(protected_globs(settings, prefix)),
            linked=Globs([glob.escape(f"{prefix}/{link}") for link in settings.links]),
            max_diff_bytes=settings.max_diff_bytes,
        )

    def check(self, changes: Sequence[ChangedFile]) -> None:
        """Check everything that does not need the diff, which is made only of changes that pass.

        Raises:
            MutationRejected: stage `empty`, `paths` or `size`.
        """
        if not changes:
            raise rejected("empty", "nothing was changed")
        for file in changes:
            if fault := self._fault(file):
                raise rejected("paths", f"{file.path!r}: {fault}")
        self.check_size(sum(file.min_diff_bytes for file in changes))

    def check_size(self, size: int) -> None:
        """Refuse a diff of too many bytes. Raises `MutationRejected`, stage `size`."""
        if size > self.max_diff_bytes:
            raise rejected("size", f"the diff has {size} bytes or more, {self.max_diff_bytes} are allowed")

    def _fault(self, file: ChangedFile) -> str | None:
        path = file.path
        if fault := _name_fault(path):
            return fault
        if SUBMODULE in (file.mode, file.old_mode):
            return "it is a submodule, or a folder with a git repository of its own; these may not change"
        if file.mode not in (*_FILES, LINK, NOTHING):
            return f"it has mode {file.mode}; only files, executable files and symbolic links can be kept"
        if file.target is not None and (fault := link_fault(path, file.target)):
            return f"it is a symbolic link to {file.target!r:.200}: {fault}"
        return self.fault_of_path(path)

    def fault_of_path(self, path: str) -> str | None:
        """Return why a file at this path may not change, regardless of the change; None if it may."""
        if self.linked.matching(path) is not None:
            return "every worktree has a link to files outside of the repository there (`links`)"
        if protecting := self.protected.matching(path):
            return f"it is a test or configures the check (`{protecting}`), and may not change without `allow_tests`"
        if denying := self.deny.matching(path):
            return f"it may not change (`deny` has {denying!r})"
        if self.allow.matching(path) is None:
            return "it may not change (it matches nothing in `allow`)"
        return None


def _name_fault(path: str) -> str | None:
    """Return what is wrong with a name; git itself has refused `..`, `.git` and what a file system takes for it."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if _CONTROL.search(path):
        return "its name has control characters in it"
    if len(encoded) > MAX_PATH_BYTES or any(len(name) > MAX_NAME_BYTES for name in encoded.split(b"/")):
        return f"its name is too long ({MAX_NAME_BYTES} bytes for a name, {MAX_PATH_BYTES} for a path)"
    if path.lower() == ".gitmodules":
        return "it configures submodules, which may not change"
    return None
