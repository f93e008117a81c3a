"""The file that lists the addresses of a fleet's endpoints."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from gepa_client.errors import Refused, unreadable
from gepa_client.transport.address import Address, rpc_url

POLL_S = 0.25
"""Seconds between two checks of the fleet file."""

TOKEN_FILE = "token-file"  # noqa: S105 - the name of a setting, not a token
PROXY_TOKEN_FILE = "proxy-token-file"  # noqa: S105 - the same
LINE = f"URL [{TOKEN_FILE}=PATH] [{PROXY_TOKEN_FILE}=PATH]"


def read_endpoints_file(path: Path, *, allow_insecure: bool = False) -> list[Address]:
    """Return the endpoints of a fleet file, one a line: `URL [token-file=PATH] [proxy-token-file=PATH]`.

    `#` starts a comment. A relative PATH starts at the file's own folder. An empty file lists none.

    Raises:
        Refused: the file cannot be read, or a line of it cannot be used; the line is named.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"the fleet file {unreadable(path, error)}") from error
    return list(_addresses(path, text, allow_insecure))


def line_address(line: str, folder: Path, *, allow_insecure: bool, listed: bool = False) -> Address:
    """Return the address that a line states; a relative PATH starts at `folder`.

    Raises:
        Refused: it cannot be used.
    """
    url, *settings = line.split()
    files: dict[str, Path] = {}
    for setting in settings:
        name, _, file = setting.partition("=")
        if name not in (TOKEN_FILE, PROXY_TOKEN_FILE) or not file or name in files:
            raise Refused(f"{setting!r} is not understood; a line is `{LINE}`")
        files[name] = folder / file
    rpc_url(url, allow_insecure=allow_insecure)
    return Address(
        url,
        token_file=files.get(TOKEN_FILE),
        proxy_token_file=files.get(PROXY_TOKEN_FILE),
        allow_insecure=allow_insecure,
        listed=listed,
    )


def _addresses(path: Path, text: str, allow_insecure: bool) -> Iterator[Address]:
    seen: set[str] = set()
    for number, text_of_line in enumerate(text.splitlines(), 1):
        line = text_of_line.split("#", 1)[0]
        if not line.strip():
            continue
        where = f"the fleet file {path}, line {number}"
        try:
            found = line_address(line, path.parent, allow_insecure=allow_insecure, listed=True)
            full = rpc_url(found.url, allow_insecure=allow_insecure)
        except Refused as error:
            raise Refused(f"{where}: {error}") from error
        if full in seen:
            raise Refused(f"{where}: {found.url} is listed twice")
        seen.add(full)
        yield found


async def file_changes(path: Path) -> AsyncIterator[None]:
    """Yield at once, and then whenever the file was changed, created or deleted."""
    known: tuple[int, ...] | None = None
    seen = False
    while True:
        state = _state(path)
        if not seen or state != known:
            known, seen = state, True
            yield
        await asyncio.sleep(POLL_S)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None  # `read_endpoints_file` reports the reason
    return found.st_ino, found.st_mtime_ns, found.st_size  # the inode shows a second replacement
