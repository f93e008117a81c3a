"""The endpoints file that a pool keeps, and its private folder."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from evolverpc_common.files import remove_tree, replace_file
from evolverpc_common.process_identity import ProcessIdentity
from sandbox_runtime.api.sandbox import ServerEndpoint
from sandbox_runtime.backends.records import is_private, private_folder, sockets_folder

OWN = 0o600


class EndpointsFile:
    """The file `FOLDER/fleet` with lines `URL token-file=PATH [proxy-token-file=PATH]`, which optimizers follow.

    Every file is complete or absent, and readable by its owner alone. `folder`: an existing private folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fleet"
        self._folder = folder
        self._members: dict[str, tuple[str, ServerEndpoint]] = {}
        self._write()

    def put(self, key: str, endpoint: ServerEndpoint) -> None:
        """List the endpoint of a sandbox in place of its earlier one. `key` becomes a part of file names."""
        had = self._members.get(key)
        if had is not None and had[1] == endpoint:
            return
        for path, token in ((self._token(key), endpoint.token), (self._proxy_token(key), endpoint.proxy_token)):
            if token is not None:
                replace_file(path, token + "\n", mode=OWN)
        line = f"{endpoint.url} token-file={self._token(key).name}"
        if endpoint.proxy_token is not None:
            line += f" proxy-token-file={self._proxy_token(key).name}"
        self._members[key] = (line, endpoint)
        if had is None or had[0] != line:
            self._write()

    def drop(self, key: str) -> None:
        """Remove a sandbox from the list."""
        if self._members.pop(key, None) is None:
            return
        self._write()
        for path in (self._token(key), self._proxy_token(key)):
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        replace_file(self.path, "".join(f"{line}\n" for line, _ in self._members.values()), mode=OWN)

    def _token(self, key: str) -> Path:
        return self._folder / f"{key}.token"

    def _proxy_token(self, key: str) -> Path:
        return self._folder / f"{key}.proxy-token"


OWNER = "owner.json"


@contextlib.contextmanager
def endpoints_folder(root: Path | None = None) -> Iterator[Path]:
    """Make a private folder for an `EndpointsFile`, and remove it after the block.

    `root`: replaces the folder that the environment names.

    Raises:
        OSError: it cannot be made.
    """
    folder = private_folder(_root(root)) / secrets.token_hex(6)
    making = folder.with_name(f".{folder.name}")
    making.mkdir(mode=0o700)
    (making / OWNER).write_text(ProcessIdentity.this_process().model_dump_json())
    making.rename(folder)  # so that no process finds one without its owner
    try:
        yield folder
    finally:
        remove_tree(folder)


def endpoints_folders(root: Path | None = None) -> list[Path]:
    """Return the folders of this user's sessions; those of ended processes may be among them."""
    fleets = _root(root)
    if not is_private(fleets.parent) or not is_private(fleets):
        return []
    return sorted(folder for folder in fleets.iterdir() if not folder.name.startswith(".") and is_private(folder))


def sweep_endpoints_folders(root: Path | None = None) -> None:
    """Remove the folders of ended processes; nothing if another user could have made them."""
    fleets = _root(root)
    if is_private(fleets.parent) and is_private(fleets):
        for folder in list(fleets.iterdir()):
            if is_private(folder) and _is_orphan(folder):
                remove_tree(folder)


def _is_orphan(folder: Path) -> bool:
    try:
        return ProcessIdentity.model_validate_json((folder / OWNER).read_bytes()).is_gone()
    except (OSError, ValidationError):
        return False  # being made or removed just now, or none of ours


def _root(root: Path | None) -> Path:
    return (root or sockets_folder()) / "fleets"
