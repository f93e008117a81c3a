"""What all sandboxes of one client have in common."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_runtime.api.egress import Closed, Egress
from sandbox_runtime.api.recipe import Recipe
from sandbox_runtime.api.spec import LIFETIME_S, MEMORY_MB, PROCESSES, READY_S, WORKSPACE_MB
from sandbox_runtime.source.recipes import Needs


@dataclass(frozen=True)
class ClientSettings:
    """How a client's sandboxes are to be.

    `server_args`: for `gepa-server`. `main`: what is started instead, for a program that serves itself; it listens
    where `GEPA_LISTEN` says. `python`, `node`: versions, in place of those that the manifests ask for. `packages`:
    further ones for its Python. `commands`: prebuilt ones by their names. The rest: see `SandboxSpec`.
    """

    server_args: tuple[str, ...] = ()
    main: tuple[str, ...] | None = None
    python: str | None = None
    node: str | None = None
    packages: tuple[str, ...] = ()
    commands: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    egress: Egress = Closed()  # noqa: RUF009  a frozen value
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: float = 1.0
    memory_mb: int = MEMORY_MB
    workspace_mb: int = WORKSPACE_MB
    processes: int = PROCESSES
    lifetime_s: float = LIFETIME_S
    ready_s: float = READY_S

    def recipe(self, needs: Needs) -> Recipe:
        """What is to be installed for a program that needs this."""
        return dataclasses.replace(
            needs.recipe,
            python=self.python or needs.recipe.python,
            node=self.node or needs.recipe.node,
            packages=(*needs.recipe.packages, *self.packages),
        )
