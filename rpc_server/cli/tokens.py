"""The bearer token: from a file or the environment, or random, in a file that is kept or for this run alone."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.network_addresses import is_loopback
from evolverpc_common.settings.sources import SettingsError
from rpc_server.cli.isolation import TOKEN_VARIABLE
from rpc_server.settings.settings import Settings


@dataclass(frozen=True)
class Token:
    """`file`: where a client can read it, None if it came from the environment. `given`: not generated for this run."""

    value: str
    given: bool
    file: Path | None


@contextmanager
def token_for(settings: Settings, environment: MutableMapping[str, str]) -> Iterator[Token]:
    """Yield the token: `token_file`, else `GEPA_TOKEN` (cleared from the environment), else a random one.

    A missing `token_file` is created with a random token, readable by its owner, and stays: the next start has the same
    token, so that clients find the server again.

    Raises:
        SettingsError: the token is unusable, or an address that others can reach has none.
    """
    from_environment = environment.pop(TOKEN_VARIABLE, None)
    if settings.token_file is not None:
        path = Path(os.path.normpath(settings.root / settings.token_file))
        with suppress(FileExistsError):
            _make(path)
        yield Token(_usable(_read(path), str(path)), given=True, file=path)
    elif from_environment is not None:
        yield Token(_usable(from_environment, TOKEN_VARIABLE), given=True, file=None)
    elif not is_loopback(settings.host):
        raise SettingsError(
            f"host {settings.host} can be reached by others: give a token by `token_file` or {TOKEN_VARIABLE}"
        )
    else:
        with _private_folder() as folder:
            path = folder / "token"
            yield Token(_make(path), given=False, file=path)


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gepa-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(path: Path) -> str:
    """Write a random token to a new file, atomically, as two servers may start at once.

    Raises:
        FileExistsError: it exists, and is left unchanged.
        SettingsError: it cannot be created.
    """
    value = secrets.token_urlsafe(32)
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token-") as file:  # mode 0600
            file.write(value + "\n")
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise SettingsError(f"`token_file` {path} cannot be made: {error.strerror}") from None
    return value


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
