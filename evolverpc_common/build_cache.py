"""Environments that are built on this machine: each once, by the first process, and kept while it is used."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from evolverpc_common.files import lock_if_free, locked, remove_tree, replace_file
from evolverpc_common.shielded import run_shielded

KEPT_DAYS = 30
"""Days that an unused environment is kept."""

BUILD_S = 1800.0
"""Seconds that one command of a build may take."""

BUILT = "built"
"""The subfolder that build commands write to."""

FILES = "files"
"""The subfolder of that with the folders `node_modules` of a checkout."""

VENV = "venv"
"""The subfolder of that with the Python environment."""

CHECKOUT = "/workspace/program"
"""Where the program is in every sandbox that has a file system of its own."""

_COMPLETE = "complete"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuiltEnvironment:
    """An environment on this machine.

    `python`: its interpreter, None if it has none. `path`: folders to be first on `PATH`. `mounts`: its folders outside
    `/usr`, to be visible read-only at the same path; the first is `BUILT`. `env`: variables that it needs; `NODE_PATH`
    is the folder of Node packages.
    `import_paths`: folders of the program's repository that Python imports from.
    """

    python: str | None = None
    path: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    import_paths: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Return the files and folders without which it is unusable."""
        python = () if self.python is None else (self.python,)
        return (*python, *self.path, *self.mounts)


_RECORD = TypeAdapter(BuiltEnvironment)


class BuildCache:
    """Environments in `folder`, for every process of this user.

    `folder/DIGEST/TIME/` holds one build of what has that digest: `BUILT`, which build commands write to, and at the
    end `complete`, which describes it and whose time is that of its last use. Builds that are unused for `KEPT_DAYS`
    are removed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._swept = False

    async def build_once(
        self,
        digest: str,
        build: Callable[[Path], Awaitable[BuiltEnvironment]],
        *,
        waiting: Callable[[], None] = lambda: None,
        rebuild: bool = False,
    ) -> BuiltEnvironment:
        """Return the environment with this digest; if there is none, `build` makes it in a folder that it creates.

        Another process that builds the same one is waited for; `waiting` is called once if so. With `rebuild` another
        build is made beside an older one that may be in use. What `build` raises is raised, and nothing is left of it.
        """
        home = self.folder / digest
        found = None if rebuild else await asyncio.to_thread(_newest, home)
        if found is None:
            async with locked(_lock_of(home), waiting):
                found = None if rebuild else await asyncio.to_thread(_newest, home)
                found = found or await _build(home, build)
            if not self._swept:
                self._swept = True
                await run_shielded(self.sweep)
        return found

    def sweep(self) -> None:
        """Remove environments that are unused for `KEPT_DAYS` or were never finished. Blocks."""
        unused_since = time.time() - KEPT_DAYS * 24 * 3600
        for home in self.folder.glob("*/"):
            with lock_if_free(_lock_of(home)) as held:  # else a process builds in it
                if held:
                    _remove_unfinished(home)
                    for place in home.glob("*/"):
                        _remove_if_unused(place, unused_since)


def refuse_links_out(built: Path, paths: Iterable[str | Path]) -> None:
    """Check that no folder of a build is a symbolic link out of it: a jail would show what it leads to. Blocks.

    `paths`: what is about to be used; those that do not begin with `built` are not of the build.

    Raises:
        ValueError: one leads to a folder outside of `built`; the text names it.
    """
    top = os.path.realpath(built)
    for path in map(Path, paths):
        for place in (path.parent, path) if path.is_relative_to(built) and path != built else ():
            if place.is_dir() and not Path(target := os.path.realpath(place)).is_relative_to(top):
                raise ValueError(
                    f"{place.relative_to(built)} leads to {target}, out of the environment: code of the repository or"
                    " of a package made this link during the installation; remove that code"
                )


def discard(folder: Path) -> None:
    """Remove a folder; log what remains."""
    try:
        remove_tree(folder)
    except OSError as error:
        logger.warning("%s", error)


async def _build(home: Path, build: Callable[[Path], Awaitable[BuiltEnvironment]]) -> BuiltEnvironment:
    await run_shielded(_remove_unfinished, home)
    place = home / f"{time.time_ns():020}"  # sorts after older builds
    try:
        record = await build(place / BUILT)
        replace_file(place / _COMPLETE, _RECORD.dump_json(record))
    except BaseException:
        await run_shielded(_remove_place, place)
        raise
    return record


def _newest(home: Path) -> BuiltEnvironment | None:
    """Return the newest finished build below `home` and mark it as used; None if there is none."""
    for complete in sorted(home.glob(f"*/{_COMPLETE}"), reverse=True):
        try:
            record = _RECORD.validate_json(complete.read_bytes())
            if record.mounts and all(Path(path).exists() for path in record.places):
                _mark_used(record, home.parent)
                return record
        except FileNotFoundError:
            continue  # it was unused for long, and has just been swept
        except ValueError:
            logger.warning("%s was not written by this version and is left alone", complete)
    return None


def _mark_used(record: BuiltEnvironment, cache: Path) -> None:
    """Mark a build as used, and those it depends on. Raises `FileNotFoundError` if one was just removed."""
    for mount in record.mounts:
        if Path(mount).is_relative_to(cache):
            os.utime(Path(mount).with_name(_COMPLETE))


def _remove_place(place: Path) -> None:
    """Remove a build, and the folder of its digest with its last build."""
    discard(place)
    with suppress(OSError):
        place.parent.rmdir()


def _remove_unfinished(home: Path) -> None:
    """Remove unfinished builds; the caller holds the lock."""
    for place in home.glob("*/"):
        if not (place / _COMPLETE).exists():
            _remove_place(place)


def _remove_if_unused(place: Path, since: float) -> None:
    """Remove a build if it is unused: its record first, so that no process begins to use the rest."""
    try:
        if (place / _COMPLETE).stat().st_mtime < since:
            (place / _COMPLETE).unlink()
            _remove_place(place)
    except OSError as error:
        logger.warning("cannot remove %s: %s", place, error.strerror)


def _lock_of(home: Path) -> Path:
    """Return the lock file of a digest: beside its folder, which may be removed."""
    return home.with_suffix(".lock")
