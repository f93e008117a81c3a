"""Commands to paste into a shell."""

import os
import re
import shlex

SUGGESTED_METRIC_CALLS = 1000
"""Metric calls in a printed command, if nothing better is known."""


def command(name: str, *words: str, store: str | None) -> str:
    """Return `evolverpc NAME WORDS` for a shell. `store`: None for the one that commands open by default."""
    return shell_line([name, *words, *(["--store", without_password(store)] if store else [])])


def shell_line(words: list[str]) -> str:
    """Return `evolverpc WORDS`, quoted; the npm package sets another beginning in `EVOLVERPC_COMMAND`."""
    return f"{os.environ.get('EVOLVERPC_COMMAND', 'evolverpc')} {shlex.join(words)}"


def without_password(url: str) -> str:
    """Return a store's address without its password."""
    return re.sub(r"(?<=://)[^/@]*@", "USER:PASSWORD@", url)
