"""The environments of this machine: each is built once, by the first process, and kept while it is used."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from evolverpc_common.files import lock_if_free, locked, replace_file
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.build_folder import (
    FILES,
    BuildFolder,
    BuiltEnvironment,
    RunBuildCommand,
    discard,
)
from sandbox_runtime.environments.disk_limit import BUILD_MB
from sandbox_runtime.environments.node import install_node, modules_folders, wants_node, without_scripts
from sandbox_runtime.environments.python import VENV, install_python, wants_python

KEPT_DAYS = 30
"""Days that an unused environment is kept."""


BUILT = "built"
"""The subfolder that build commands write to."""

_COMPLETE = "complete"
_BUILT = TypeAdapter(BuiltEnvironment)

logger = logging.getLogger(__name__)


class EnvironmentCache:
    """Environments of recipes in `folder`, for every process of this user.

    `folder/DIGEST/TIME/` holds one build of a recipe: `built/`, which build commands write to, and at the end
    `complete`, which describes it and whose time is that of its last use. With `rebuild` another build is made beside
    an older one that sandboxes may use. Builds that are unused for `KEPT_DAYS` are removed.

    `folder`: by default `$XDG_CACHE_HOME/evolverpc/environments`, or below `~/.cache`. `build_mb`: the largest size of
    one build, in MiB.
    """

    def __init__(self, folder: Path | None = None, *, build_mb: int = BUILD_MB) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.folder = (folder or cache / "evolverpc" / "environments").absolute()
        self._build_mb = build_mb
        self._swept = False

    async def ready(
        self, recipe: Recipe, *, run: RunBuildCommand, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> BuiltEnvironment:
        """Return the recipe's environment; build it with `run` if there is none, and report progress to `on_progress`.

        Another process that builds the same one is waited for. An empty recipe needs nothing.

        Raises:
            EnvironmentMissing: it cannot be built; the message names the command and has the end of its output.
            RuntimeUnavailable: uv is not installed. RuntimeInterrupted: a command of the build was killed.
        """
        if not (wants_python(recipe) or wants_node(recipe)):
            return BuiltEnvironment()
        home = self.folder / recipe.digest
        found = None if rebuild else await asyncio.to_thread(newest, home)
        if found is None:
            async with locked(
                lock_of(home), lambda: on_progress("waiting for another process that builds this environment")
            ):
                found = None if rebuild else await asyncio.to_thread(newest, home)
                found = found or await self._build(home, recipe, run, on_progress)
            if not self._swept:
                self._swept = True
                await run_shielded(self.sweep)
        return found

    async def _build(
        self, home: Path, recipe: Recipe, run: RunBuildCommand, on_progress: Callable[[str], None]
    ) -> BuiltEnvironment:
        await run_shielded(remove_unfinished, home)
        place = home / f"{time.time_ns():020}"  # sorts after older builds
        site = BuildFolder(place / BUILT, run, on_progress, self._build_mb)
        try:
            site.make(without_scripts(recipe.files), modules_folders(recipe))
            parts = []
            if wants_python(recipe):
                parts.append(await install_python(recipe, site))
            if wants_node(recipe):
                parts.append(await install_node(recipe, site, partial(self.ready, run=run, on_progress=on_progress)))
            built = BuiltEnvironment(
                python=parts[0].python,
                path=tuple(folder for part in parts for folder in part.path),
                mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.mounts)),
                env={name: value for part in parts for name, value in part.env.items()},
                needs=tuple(path for part in parts for path in part.needs),
            )
            await run_shielded(site.clean, (FILES, VENV))
            replace_file(place / _COMPLETE, _BUILT.dump_json(built))
        except BaseException:
            await run_shielded(remove_place, place)
            raise
        return built

    def sweep(self) -> None:
        """Remove environments that are unused for `KEPT_DAYS` or were never finished. Blocks."""
        unused_since = time.time() - KEPT_DAYS * 24 * 3600
        for home in self.folder.glob("*/"):
            with lock_if_free(lock_of(home)) as held:  # else a process builds that recipe
                if held:
                    remove_unfinished(home)
                    for place in home.glob("*/"):
                        _remove_if_unused(place, unused_since)


def newest(home: Path) -> BuiltEnvironment | None:
    """Return the newest finished build below `home` and mark it as used; None if there is none."""
    for complete in sorted(home.glob(f"*/{_COMPLETE}"), reverse=True):
        try:
            built = _BUILT.validate_json(complete.read_bytes())
            if all(Path(path).exists() for path in built.needs):
                _mark_used(built, home.parent)
                return built
        except FileNotFoundError:
            continue  # it was unused for long, and has just been swept
        except ValueError:
            logger.warning("%s was not written by this version and is left alone", complete)
    return None


def _mark_used(built: BuiltEnvironment, cache: Path) -> None:
    """Mark a build as used, and those it depends on. Raises `FileNotFoundError` if one was just removed."""
    for mount in built.mounts:
        if Path(mount).is_relative_to(cache):
            os.utime(Path(mount).with_name(_COMPLETE))


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
