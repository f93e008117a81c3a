"""Text for people: untrusted text made safe to show, counts, durations, and commands to paste into a shell."""

import os
import re
import shlex
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

LINE_LENGTH = 2000

_KEPT = frozenset("\n\t")
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def plain(text: str, *, limit: int | None = None) -> str:
    """Return `text` with control, format and bidirectional characters as escapes, at most `limit` characters long."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isascii() and text.isprintable() else _replaced(text, _escaped)


def plain_json(text: str) -> str:
    """Return JSON text with the same characters as JSON escapes, so that it parses to the same value."""
    return text if text.isascii() and "\x7f" not in text else _replaced(text, _json_escape)


def one_line(text: str, limit: int = LINE_LENGTH) -> str:
    """Return `text` as one line of at most `limit` characters."""
    return plain(" ".join(text.split()), limit=limit)


def counted(number: int, what: str) -> str:
    """Return `1 row`, `1,200 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], shown: int = 10) -> str:
    """Return the first `shown` of these, and how many more there are: `a, b and 3 more`."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown:,} more" if len(names) > shown else "")


def money(usd: float, unpriced: int = 0, unreported: int = 0) -> str:
    """Return `$0.0123`, `$0.0123 + 1 result without a price`, `unknown (2 results without a price)` or `none reported`.

    An unknown price is never zero. `unreported`: those of the `unpriced` results that reported no usage at all.
    """
    known = f"${usd:,.2f}" if usd >= 100 else f"${usd:.4f}" if usd else "$0"
    if unknown := unpriced - unreported:
        without = f"{counted(unknown, 'result')} without a price"
        return f"{known} + {without}" if usd else f"unknown ({without})"
    return known if usd or not unreported else "none reported"


def seconds_since(moment: str) -> float | None:
    """Return the seconds from an ISO 8601 time to now; None if it is invalid."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - then.replace(tzinfo=then.tzinfo or UTC)).total_seconds())


def duration(seconds: float | None) -> str:
    """Return `3 s`, `12 min`, `5 h`, `9 d`."""
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _replaced(text: str, escape: Callable[[str], str]) -> str:
    return "".join(
        character if character in _KEPT or unicodedata.category(character) not in _UNSAFE else escape(character)
        for character in text
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # the first form is JSON's own


def command(name: str, *words: str, store: str | None) -> str:
    """Return `evolverpc NAME WORDS` for a shell. `store`: None for the one that commands open by default."""
    return shell_line([name, *words, *(["--store", without_password(store)] if store else [])])


def shell_line(words: list[str]) -> str:
    """Return `evolverpc WORDS`, quoted; the npm package sets another beginning in `EVOLVERPC_COMMAND`."""
    return f"{os.environ.get('EVOLVERPC_COMMAND', 'evolverpc')} {shlex.join(words)}"


def without_password(url: str) -> str:
    """Return a store's address without its password."""
    return re.sub(r"(?<=://)[^/@]*@", "USER:PASSWORD@", url)
