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

    `python`: its interpreter, None where the recipe asks for none. `path`: folders to be first on `PATH`. `mounts`: all
    folders outside `/usr` that it lives in, to be seen read-only at the same path. `env`: variables it needs; where it
    has Node's packages, `NODE_PATH` is the folder `node_modules` itself, for whoever links it to a program.
    """

    python: str | None = None
    path: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Run(Protocol):
    """Runs one command that builds: somebody's code, as that of a dependency's `setup.py` is."""

    async def __call__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        """Run it to its end; its status (128 + signal where that killed it) and what it wrote, stderr with stdout.

        It may write in `cwd` and all below it, which already holds files, and nowhere else; a later command goes on
        with what an earlier one left there. What it writes must be readable by the sandboxes that use it. `env` is all
        of its environment. `readable`: files and folders outside `/usr` that it needs to see, at the same path. The
        network is the host's: packages are fetched. Nothing that it started is left when this returns, raises or
        is cancelled.

        Raises:
            TimeoutError: it ran longer than `timeout_s` seconds.
            SandboxError: it cannot be run.
        """
        ...


@dataclass(frozen=True)
class Record:
    """What is written down of a finished one. `needs`: paths without which it is worth nothing any more."""

    built: BuiltEnvironment
    needs: tuple[str, ...] = ()

    def written(self) -> str:
        """As JSON."""
        return json.dumps({"built": asdict(self.built), "needs": self.needs})

    @staticmethod
    def read(text: str) -> "Record":
        """What was written. Raises `ValueError`, `KeyError` or `TypeError` where it was not this."""
        document = json.loads(text)
        built = document["built"]
        return Record(
            BuiltEnvironment(built["python"], tuple(built["path"]), tuple(built["mounts"]), dict(built["env"])),
            tuple(document["needs"]),
        )


BUILT = "built"
"""The folder of a place that build commands write to."""

_COMPLETE = "complete"

logger = logging.getLogger(__name__)


def new_place(home: Path) -> Path:
    """A folder that is yet to be made below `home`; its name is later than those of its elders."""
    return home / f"{time.time_ns():020}"


def newest(home: Path) -> Record | None:
    """What was finished last below `home`, marked as used now; None where there is nothing that is whole."""
    for complete in sorted(home.glob(f"*/{_COMPLETE}"), reverse=True):
        try:
            record = Record.read(complete.read_text(encoding="utf-8"))
            if all(Path(path).exists() for path in record.needs):
                _mark_used(record, home.parent)
                return record
        except FileNotFoundError:
            continue  # it was unused for long, and has just been swept
        except (ValueError, KeyError, TypeError):
            logger.warning("%s was not written by this version and is left alone", complete)
    return None


def _mark_used(record: Record, cache: Path) -> None:
    """Also those of the cache that it builds upon. Raises `FileNotFoundError` where one of them has just gone."""
    for mount in record.built.mounts:
        if Path(mount).is_relative_to(cache):
            os.utime(Path(mount).with_name(_COMPLETE))


def finish(place: Path, record: Record) -> None:
    """From now on it is whole."""
    replace_file(place / _COMPLETE, record.written())


def discard(folder: Path) -> None:
    """Remove a folder; a log says what of it stays."""
    try:
        remove_tree(folder)
    except OSError as error:
        logger.warning("%s", error)


def remove_place(place: Path) -> None:
    """Remove a building of a recipe, and with the last of them the recipe's own folder."""
    discard(place)
    with suppress(OSError):
        place.parent.rmdir()


def remove_unfinished(home: Path) -> None:
    """Remove what was begun and not finished; for whoever holds the lock."""
    for place in home.glob("*/"):
        if not (place / _COMPLETE).exists():
            remove_place(place)


def sweep(folder: Path, unused_since: float) -> None:
    """Remove what nobody asked for since then (as of `time.time`), unless somebody is building that recipe."""
    for home in folder.glob("*/"):
        with lock_if_free(lock_of(home)) as held:
            if held:
                remove_unfinished(home)
                for place in home.glob("*/"):
                    _remove_if_unused(place, unused_since)


def _remove_if_unused(place: Path, since: float) -> None:
    """Its mark is taken away first and looked at then: whoever wants it meanwhile finds it gone, or keeps it."""
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
    """The file that whoever builds there holds: beside the folder, as that comes and goes."""
    return home.with_suffix(".lock")
