"""What a program needs installed, and where a runtime has it ready."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recipe:
    """The environment of one program, for its Python or its Node.

    `python`: what its version must be (`3.12`, `>=3.10`), None where the program needs none. `node`: the same for Node.
    `files`: manifests and locks by their names in one folder: `requirements.txt`, `pyproject.toml`, `uv.lock`,
    `package.json`, `package-lock.json`, `.npmrc`. `packages`: further packages for its Python, as pip takes them.
    """

    python: str | None = None
    node: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """24 hex digits that change with anything in it."""
        told = hashlib.sha256(repr((self.python, self.node, self.packages)).encode())
        for name, content in sorted(self.files.items()):
            told.update(f"{name} {len(content)}\n".encode())
            told.update(content)
        return told.hexdigest()[:24]


@dataclass(frozen=True)
class Prepared:
    """A recipe's environment as one runtime has it, for use by that runtime alone.

    `server`: the command that starts `gepa-server` there. `python`: the program's interpreter there, None where it has
    no Python. `path`: folders to be first on `PATH`. `mounts`: folders of this machine to be seen read-only at the same
    path, where the runtime mounts any. `image`: what the runtime calls it, where that is not a folder. `env`: variables
    that the environment needs.
    """

    recipe: Recipe
    server: tuple[str, ...]
    python: str | None = None
    path: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
