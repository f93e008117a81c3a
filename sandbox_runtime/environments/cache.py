"""The environments of this machine: each is built once, by the first process, and kept while it is used."""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evolverpc_common.file_lock import locked
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.build_folder import FILES, BuildFolder
from sandbox_runtime.environments.disk_limit import BUILD_MB
from sandbox_runtime.environments.node import MODULES, install_node, wants_node, without_scripts
from sandbox_runtime.environments.python import VENV, install_python, wants_python
from sandbox_runtime.environments.store import (
    BUILT,
    BuiltEnvironment,
    EnvironmentRecord,
    RunBuildCommand,
    finish,
    lock_of,
    new_place,
    newest,
    remove_place,
    remove_unfinished,
    sweep,
)

KEPT_DAYS = 30
"""Days that an unused environment is kept."""


def default_folder() -> Path:
    """Return the folder in the user's cache: `$XDG_CACHE_HOME/evolverpc/environments`, or below `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evolverpc" / "environments"


class EnvironmentCache:
    """Environments of recipes in `folder`, for every process of this user.

    `folder/DIGEST/TIME/` holds one build of a recipe: `built/`, which build commands write to, and at the end
    `complete`, which describes it and whose time is that of its last use. With `rebuild` another build is made beside
    an older one that sandboxes may use. Builds that are unused for `KEPT_DAYS` are removed. `build_mb`: the largest
    size of one, in MiB.
    """

    def __init__(self, folder: Path | None = None, *, build_mb: int = BUILD_MB) -> None:
        self.folder = (folder or default_folder()).absolute()
        self._build_mb = build_mb
        self._swept = False

    async def ready(
        self, recipe: Recipe, *, run: RunBuildCommand, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> BuiltEnvironment:
        """Return the recipe's environment; build it with `run` if there is none, and report progress to `on_progress`.

        Another process that builds the same one is waited for. An empty recipe needs nothing.

        Raises:
            EnvironmentMissing: it cannot be built; the message names the command and has the end of its output.
            RuntimeUnavailable: uv is not installed.
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
        return found.built

    async def _build(
        self, home: Path, recipe: Recipe, run: RunBuildCommand, on_progress: Callable[[str], None]
    ) -> EnvironmentRecord:
        await run_shielded(remove_unfinished, home)
        place = new_place(home)
        site = BuildFolder(place / BUILT, run, on_progress, self._build_mb)
        try:
            site.make(without_scripts(recipe.files), (MODULES,))
            parts = []
            if wants_python(recipe):
                parts.append(await install_python(recipe, site))
            if wants_node(recipe):
                parts.append(await install_node(recipe, site, partial(self.ready, run=run, on_progress=on_progress)))
            record = EnvironmentRecord(
                BuiltEnvironment(
                    python=parts[0].built.python,
                    path=tuple(folder for part in parts for folder in part.built.path),
                    mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.built.mounts)),
                    env={name: value for part in parts for name, value in part.built.env.items()},
                ),
                tuple(path for part in parts for path in part.needs),
            )
            await run_shielded(site.clean, (FILES, VENV))
            finish(place, record)
        except BaseException:
            await run_shielded(remove_place, place)
            raise
        return record

    def sweep(self) -> None:
        """Remove environments that are unused for `KEPT_DAYS` or were never finished. Blocks."""
        sweep(self.folder, time.time() - KEPT_DAYS * 24 * 3600)
