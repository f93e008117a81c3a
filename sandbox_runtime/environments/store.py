"""Built environments on disk: how they are recorded, found, finished and removed. All functions block."""

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from evolverpc_common.atomic_files import replace_file
from evolverpc_common.file_lock import lock_if_free
from evolverpc_common.remove_tree import remove_tree


@dataclass(frozen=True)
class BuiltEnvironment:
    """An environment on this machine.

    `python`: its interpreter, None if the recipe needs none. `path`: folders to be first on `PATH`. `mounts`: its
    folders outside `/usr`, to be visible read-only at the same path. `env`: variables that it needs; with Node
    packages, `NODE_PATH` is the folder `node_modules` itself, to be linked to a program.
    """

    python: str | None = None
    path: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class RunBuildCommand(Protocol):
    """Runs one command of a build, which may execute untrusted code such as a dependency's `setup.py`."""

    async def __call__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        """Run a command to its end; return its status (128 + signal if killed) and its output, stderr included.

        It may write in `cwd` and below only, which already holds files; a later command continues with them. What it
        writes must be readable by the sandboxes that use it. `env` is its whole environment. `readable`: files and
        folders outside `/usr` that it needs to see, at the same path. It has network access, to fetch packages. Nothing
        that it started is left when this returns, raises or is cancelled.

        Raises:
            TimeoutError: it ran longer than `timeout_s` seconds.
            SandboxError: it cannot be run.
        """
        ...


@dataclass(frozen=True)
class EnvironmentRecord:
    """The record of a finished environment. `needs`: paths without which it is unusable."""

    built: BuiltEnvironment
    needs: tuple[str, ...] = ()

    def written(self) -> str:
        """Return it as JSON."""
        return json.dumps({"built": asdict(self.built), "needs": self.needs})

    @staticmethod
    def read(text: str) -> "EnvironmentRecord":
        """Parse a record. Raises `ValueError`, `KeyError` or `TypeError` if it has another form."""
        document = json.loads(text)
        built = document["built"]
        return EnvironmentRecord(
            BuiltEnvironment(built["python"], tuple(built["path"]), tuple(built["mounts"]), dict(built["env"])),
            tuple(document["needs"]),
        )


BUILT = "built"
"""The subfolder that build commands write to."""

_COMPLETE = "complete"

logger = logging.getLogger(__name__)


def new_place(home: Path) -> Path:
    """Return the path of a new build below `home`; its name sorts after older ones."""
    return home / f"{time.time_ns():020}"


def newest(home: Path) -> EnvironmentRecord | None:
    """Return the newest finished build below `home` and mark it as used; None if there is none."""
    for complete in sorted(home.glob(f"*/{_COMPLETE}"), reverse=True):
        try:
            record = EnvironmentRecord.read(complete.read_text(encoding="utf-8"))
            if all(Path(path).exists() for path in record.needs):
                _mark_used(record, home.parent)
                return record
        except FileNotFoundError:
            continue  # it was unused for long, and has just been swept
        except (ValueError, KeyError, TypeError):
            logger.warning("%s was not written by this version and is left alone", complete)
    return None


def _mark_used(record: EnvironmentRecord, cache: Path) -> None:
    """Mark a build as used, and those it depends on. Raises `FileNotFoundError` if one was just removed."""
    for mount in record.built.mounts:
        if Path(mount).is_relative_to(cache):
            os.utime(Path(mount).with_name(_COMPLETE))


def finish(place: Path, record: EnvironmentRecord) -> None:
    """Mark a build as complete."""
    replace_file(place / _COMPLETE, record.written())


def discard(folder: Path) -> None:
    """Remove a folder; log what remains."""
    try:
        remove_tree(folder)
    except OSError as error:
        logger.warning("%s", error)


def remove_place(place: Path) -> None:
    """Remove a build, and the recipe's folder with its last build."""
    discard(place)
    with suppress(OSError):
        place.parent.rmdir()


def remove_unfinished(home: Path) -> None:
    """Remove unfinished builds; the caller holds the lock."""
    for place in home.glob("*/"):
        if not (place / _COMPLETE).exists():
            remove_place(place)


def sweep(folder: Path, unused_since: float) -> None:
    """Remove builds unused since then (as of `time.time`), unless a process builds that recipe."""
    for home in folder.glob("*/"):
        with lock_if_free(lock_of(home)) as held:
            if held:
                remove_unfinished(home)
                for place in home.glob("*/"):
                    _remove_if_unused(place, unused_since)


def _remove_if_unused(place: Path, since: float) -> None:
    """Remove a build if it is unused.

    Its record is renamed before its time is read, so that a process that wants it finds it gone or keeps it.
    """
    complete, looked_at = place / _COMPLETE, place / "looked-at"
    try:
        if complete.stat().st_mtime >= since:
            return
        complete.replace(looked_at)
        if looked_at.stat().st_mtime >= since:
            looked_at.replace(complete)
        else:
            remove_place(place)
    except OSError as error:
        logger.warning("cannot remove %s: %s", place, error.strerror)


def lock_of(home: Path) -> Path:
    """Return the lock file of a recipe: beside its folder, which may be removed."""
    return home.with_suffix(".lock")
