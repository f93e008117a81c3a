"""The bearer token: given by file or environment, or made up for this run in a private file."""

import ipaddress
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rpc_server.config import SettingsError
from rpc_server.settings import Settings

TOKEN_VARIABLE = "GEPA_TOKEN"  # noqa: S105  # the name of a variable, not a token


@dataclass(frozen=True)
class Token:
    """`file` is where a client can read it, None where it came by the environment; `given`: not of our making."""

    value: str
    given: bool
    file: Path | None


@contextmanager
def token_for(settings: Settings, environment: MutableMapping[str, str]) -> Iterator[Token]:
    """The token of this run: `token_file`, else `GEPA_TOKEN` (taken out of the environment), else a random one.

    Raises:
        SettingsError: the token cannot be used, or none was given for an address that others can reach.
    """
    from_environment = environment.pop(TOKEN_VARIABLE, None)
    if settings.token_file is not None:
        path = settings.root / settings.token_file
        yield Token(_usable(_read(path), str(path)), given=True, file=path)
    elif from_environment is not None:
        yield Token(_usable(from_environment, TOKEN_VARIABLE), given=True, file=None)
    elif not _is_loopback(settings.host):
        raise SettingsError(
            f"host {settings.host} can be reached by others: give a token by `token_file` or {TOKEN_VARIABLE}"
        )
    else:
        with _private_folder() as folder:
            path = folder / "token"
            value = secrets.token_urlsafe(32)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(value + "\n")
            yield Token(value, given=False, file=path)


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gepa-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"`token_file` {path} cannot be read: {error}") from None


def _usable(text: str, source: str) -> str:
    token = text.strip()
    if not token:
        raise SettingsError(f"{source} holds an empty token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"{source}: a token is one word of printable ASCII")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
