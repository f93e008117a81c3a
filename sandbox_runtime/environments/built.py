"""What an environment is once it is built, who runs the commands that build it, and how it is written down."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Built:
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

    built: Built
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
            Built(built["python"], tuple(built["path"]), tuple(built["mounts"]), dict(built["env"])),
            tuple(document["needs"]),
        )
