"""The environments of this machine: each built once, by whichever process comes first, and kept while it is used."""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evolverpc_common.file_lock import locked
from evolverpc_common.shielded import to_the_end
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.build_folder import FILES, BuildFolder
from sandbox_runtime.environments.disk_limit import BUILD_MB
from sandbox_runtime.environments.node import MODULES, install_node, wants_node, without_scripts
from sandbox_runtime.environments.python import VENV, install_python, wants_python
from sandbox_runtime.environments.store import (
    BUILT,
    BuiltEnvironment,
    Record,
    Run,
    finish,
    lock_of,
    new_place,
    newest,
    remove_place,
    remove_unfinished,
    sweep,
)

KEPT_DAYS = 30
"""How long an environment is kept that nobody asks for."""


def default_folder() -> Path:
    """Where a user's caches go: `$XDG_CACHE_HOME/evolverpc/environments`, by default below `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evolverpc" / "environments"


class EnvironmentCache:
    """A cache of what recipes ask for, in `folder`, for every process of this user.

    `folder/DIGEST/TIME/` holds one building of a recipe: `built/`, which build commands write to, and, once all of it
    is there, `complete`, which says what it is and whose time is that of its last use. What is asked for `afresh` is
    built beside its elder, which sandboxes may be using. What nobody asked for in `KEPT_DAYS` goes. `build_mb`: what
    one may hold, in MiB.
    """

    def __init__(self, folder: Path | None = None, *, build_mb: int = BUILD_MB) -> None:
        self.folder = (folder or default_folder()).absolute()
        self._build_mb = build_mb
        self._swept = False

    async def ready(
        self, recipe: Recipe, *, run: Run, told: Callable[[str], None], afresh: bool = False
    ) -> BuiltEnvironment:
        """The recipe's environment; built with `run` where there is none yet, `told` then hearing what is done.

        Whoever wants one that is being built waits for it. A recipe that asks for nothing gets nothing.

        Raises:
            NotPrepared: it cannot be built; the text says which command failed and what that wrote last.
            Unavailable: there is no uv to build it with.
        """
        if not (wants_python(recipe) or wants_node(recipe)):
            return BuiltEnvironment()
        home = self.folder / recipe.digest
        found = None if afresh else await asyncio.to_thread(newest, home)
        if found is None:
            async with locked(lock_of(home), lambda: told("waiting for another process that builds this environment")):
                found = None if afresh else await asyncio.to_thread(newest, home)
                found = found or await self._build(home, recipe, run, told)
            if not self._swept:
                self._swept = True
                await to_the_end(self.sweep)
        return found.built

    async def _build(self, home: Path, recipe: Recipe, run: Run, told: Callable[[str], None]) -> Record:
        await to_the_end(remove_unfinished, home)
        place = new_place(home)
        site = BuildFolder(place / BUILT, run, told, self._build_mb)
        try:
            site.make(without_scripts(recipe.files), (MODULES,))
            parts = []
            if wants_python(recipe):
                parts.append(await install_python(recipe, site))
            if wants_node(recipe):
                parts.append(await install_node(recipe, site, partial(self.ready, run=run, told=told)))
            record = Record(
                BuiltEnvironment(
                    python=parts[0].built.python,
                    path=tuple(folder for part in parts for folder in part.built.path),
                    mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.built.mounts)),
                    env={name: value for part in parts for name, value in part.built.env.items()},
                ),
                tuple(path for part in parts for path in part.needs),
            )
            await to_the_end(site.clean, (FILES, VENV))
            finish(place, record)
        except BaseException:
            await to_the_end(remove_place, place)
            raise
        return record

    def sweep(self) -> None:
        """Remove what nobody asked for in `KEPT_DAYS`, and what was begun and never finished. Blocks."""
        sweep(self.folder, time.time() - KEPT_DAYS * 24 * 3600)
