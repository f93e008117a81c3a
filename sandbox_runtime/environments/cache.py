"""The environments of recipes on this machine: each is built once, by the first process, and kept while it is used."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evolverpc_common.build_cache import FILES, VENV, BuildCache, BuiltEnvironment, refuse_links_out
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import EnvironmentMissing
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.build_folder import BuildFolder, RunBuildCommand
from sandbox_runtime.environments.node import install_node, wants_node
from sandbox_runtime.environments.python import install_python, wants_python


class EnvironmentCache(BuildCache):
    """Environments of recipes in `folder`, for every process of this user.

    `folder`: by default `$XDG_CACHE_HOME/evolverpc/environments`, or below `~/.cache`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        super().__init__(folder or cache / "evolverpc" / "environments")

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
        return await self.build_once(
            recipe.digest,
            partial(self._build, recipe, run, on_progress),
            waiting=lambda: on_progress("waiting for another process that builds this environment"),
            rebuild=rebuild,
        )

    async def _build(
        self, recipe: Recipe, run: RunBuildCommand, on_progress: Callable[[str], None], folder: Path
    ) -> BuiltEnvironment:
        site = BuildFolder(folder, run, on_progress)
        await asyncio.to_thread(site.make, recipe.checkout)
        parts = []
        if wants_python(recipe):
            parts.append(await install_python(recipe, site))
        if wants_node(recipe):
            parts.append(await install_node(recipe, site, partial(self.ready, run=run, on_progress=on_progress)))
        await run_shielded(site.clean, (FILES, VENV))
        built = BuiltEnvironment(
            python=parts[0].python,
            path=tuple(folder for part in parts for folder in part.path),
            mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.mounts)),
            env={name: value for part in parts for name, value in part.env.items()},
            import_paths=parts[0].import_paths,
        )
        try:
            await run_shielded(refuse_links_out, folder, (*built.places, *built.env.values()))
        except ValueError as error:
            raise EnvironmentMissing(f"the environment cannot be built: {error}") from None
        return built
