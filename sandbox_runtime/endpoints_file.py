"""The endpoints file that a pool keeps, and its private folder."""

import contextlib
import itertools
from pathlib import Path

from evolverpc_common.files import replace_file
from sandbox_runtime.api.sandbox import ServerEndpoint
from sandbox_runtime.backends.records import SandboxRecords, is_private

OWN = 0o600


class EndpointsFile:
    """The file `FOLDER/fleet` with lines `URL token-file=PATH [proxy-token-file=PATH]`, which optimizers follow.

    Every file is complete or absent, and readable by its owner alone. `folder`: an existing private folder.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fleet"
        self._folder = folder
        self._members: dict[str, ServerEndpoint] = {}
        self._write()

    def __len__(self) -> int:
        return len(self._members)

    def put(self, key: str, endpoint: ServerEndpoint) -> None:
        """List the endpoint of a sandbox in place of its earlier one. `key` becomes a part of file names."""
        if self._members.get(key) == endpoint:
            return
        for path, token in ((self._token(key), endpoint.token), (self._proxy_token(key), endpoint.proxy_token)):
            if token is not None:
                replace_file(path, token + "\n", mode=OWN)
        before = self._members.get(key)
        self._members[key] = endpoint
        if before is None or self._line(key, before) != self._line(key, endpoint):
            self._write()

    def drop(self, key: str) -> None:
        """Remove a sandbox from the list."""
        if self._members.pop(key, None) is None:
            return
        self._write()
        for path in (self._token(key), self._proxy_token(key)):
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        replace_file(self.path, "".join(itertools.starmap(self._line, self._members.items())), mode=OWN)

    def _line(self, key: str, endpoint: ServerEndpoint) -> str:
        proxy = f" proxy-token-file={self._proxy_token(key).name}" if endpoint.proxy_token is not None else ""
        return f"{endpoint.url} token-file={self._token(key).name}{proxy}\n"

    def _token(self, key: str) -> Path:
        return self._folder / f"{key}.token"

    def _proxy_token(self, key: str) -> Path:
        return self._folder / f"{key}.proxy-token"


SESSIONS = "sessions"
"""The kind of the folders in which sessions keep their endpoints files, see `owned_folders`."""


def endpoints_folders() -> list[Path]:
    """Return the folders of this user's sessions; those of ended processes may be among them."""
    try:
        folders = [record.sockets for record in SandboxRecords(SESSIONS).all()]
    except PermissionError:
        return []  # another user could have made them
    return [folder for folder in folders if is_private(folder.parent) and is_private(folder)]


def sweep_endpoints_folders() -> None:
    """Remove the folders of ended processes; nothing if another user could have made them."""
    with contextlib.suppress(PermissionError):
        SandboxRecords(SESSIONS).remove_orphans()
