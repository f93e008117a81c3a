"""What a mutation may change: allowed paths, kinds of files, links, size, and that there is a change at all."""

import re
from dataclasses import dataclass
from typing import Self

from rpc_server.mutations.check_files import check_files
from rpc_server.mutations.globs import Globs
from rpc_server.mutations.links import leaving
from rpc_server.mutations.rejection import rejected
from rpc_server.settings.config_file import SettingsError
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.changes import LINK, NOTHING, SUBMODULE, ChangedFile, Changes

MAX_NAME_BYTES = 255
"""What file systems take for one name."""

MAX_PATH_BYTES = 2000
"""A path from the repository's top; there must be room for the folder that the files are checked out to."""

_FILES = ("100644", "100755")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def judges_of(settings: Settings, prefix: str) -> tuple[str, ...]:
    """Globs of what no mutation may change, as it decides whether the check accepts one; none without a check."""
    if settings.check_command is None or settings.allow_tests:
        return ()
    return check_files(settings.check_command, program=settings.program, prefix=prefix)


@dataclass(frozen=True)
class Rules:
    """`linked`: paths, from the repository's top, where every tree gets a link to the user's own files.

    `judges`: what decides whether the check accepts a mutation.
    """

    allow: Globs
    deny: Globs
    judges: Globs
    linked: Globs
    max_diff_bytes: int

    @classmethod
    def of(cls, settings: Settings, prefix: str) -> Self:
        """Those of the settings; `prefix` leads from the repository's top to the settings' root.

        Raises:
            SettingsError: a glob is none.
        """
        try:
            return cls(
                allow=Globs(settings.allow),
                deny=Globs(settings.deny),
                judges=Globs(judges_of(settings, prefix)),
                linked=Globs([_escaped(f"{prefix}/{link}") for link in settings.links]),
                max_diff_bytes=settings.max_diff_bytes,
            )
        except re.error as error:
            raise SettingsError(f"`allow` or `deny`: {error.pattern!r} cannot be read as a glob: {error}") from None

    def check(self, changes: Changes) -> None:
        """Everything that can be told without the diff; it is made only of what passed here.

        Raises:
            MutationRejected: stage `empty`, `paths` or `size`.
        """
        if not changes.files:
            raise rejected("empty", "nothing was changed")
        for file in changes.files:
            if fault := self._fault(file):
                raise rejected("paths", f"{file.path!r}: {fault}")
        before = leaving(changes.old_links)
        for path, why in leaving(changes.links).items():
            as_before = path in before and changes.old_links[path] == changes.links[path]
            if not as_before:
                raise rejected("paths", f"{path!r} is a symbolic link to {changes.links[path]!r:.200}: {why}")
        self.check_size(sum(file.least_diff_bytes for file in changes.files))

    def check_size(self, size: int) -> None:
        """Raises `MutationRejected`, stage `size`, for a diff of more bytes than it may have."""
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
        if self.linked.matching(path) is not None:
            return "every tree gets a link to files outside of the repository there (`links`)"
        if judge := self.judges.matching(path):
            return f"it is a test or configures the check (`{judge}`), and may not change without `allow_tests`"
        if denied := self.deny.matching(path):
            return f"it may not change (`deny` has {denied!r})"
        if self.allow.matching(path) is None:
            return "it may not change (it matches nothing in `allow`)"
        return None


def _name_fault(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if _CONTROL.search(path):
        return "its name has control characters in it"
    if len(encoded) > MAX_PATH_BYTES or any(len(name) > MAX_NAME_BYTES for name in encoded.split(b"/")):
        return f"its name is too long ({MAX_NAME_BYTES} bytes for a name, {MAX_PATH_BYTES} for a path)"
    names = path.lower().split("/")
    if any(name in ("", ".", "..", ".git") for name in names):
        return "it is not a path of files of the repository"
    if names == [".gitmodules"]:
        return "it speaks of submodules, which may not change"
    return None


def _escaped(path: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", path)
