"""The fleet file that a pool keeps: a line for each sandbox that is up, its tokens in files of their own."""

from pathlib import Path

from evolverpc_common.atomic_files import replace_file
from sandbox_runtime.api.endpoint import Endpoint

OWN = 0o600


class RosterFile:
    """`FOLDER/fleet` with lines `URL token-file=PATH [proxy-token-file=PATH]`, which optimizers follow.

    Every file is complete or absent, and its owner's alone. `folder`: there, and nobody else's.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fleet"
        self._folder = folder
        self._members: dict[str, tuple[str, Endpoint]] = {}
        self._write()

    def put(self, key: str, endpoint: Endpoint) -> None:
        """List the endpoint of the sandbox `key`, a file's name; another one than before takes its place."""
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
        """List it no longer."""
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
