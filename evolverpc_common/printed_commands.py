"""Commands to paste into a shell."""

import os
import re
import shlex

SUGGESTED_METRIC_CALLS = 1000
"""Metric calls in a printed command, if nothing better is known."""


def command(name: str, *words: str, store: str | None) -> str:
    """Return `gepa-client NAME WORDS` for a shell. `store`: None for the one that commands open by default."""
    return shell_line(["gepa-client", name, *words, *(["--store", without_password(store)] if store else [])])


def shell_line(words: list[str]) -> str:
    """Quote the words of a `gepa-client` command, by the path in `GEPA_CLIENT` if the npm package started it by one."""
    return shlex.join([os.environ.get("GEPA_CLIENT") or words[0], *words[1:]])


def without_password(url: str) -> str:
    """Return a store's address without its password."""
    return re.sub(r"(?<=://)[^/@]*@", "USER:PASSWORD@", url)
