"""The commands that messages of the product print: quoted for a shell, with everything they need to run as printed."""

import re
import shlex

ENOUGH = 1000
"""Metric calls in a printed command, if nothing better is known."""


def command(name: str, *words: str, store: str | None) -> str:
    """`gepa-client NAME WORDS`, to be pasted into a shell; `store`: None for the one that commands open by default."""
    return shlex.join(["gepa-client", name, *words, *(["--store", without_password(store)] if store else [])])


def without_password(url: str) -> str:
    """A store's address as it may be shown."""
    return re.sub(r"(?<=://)[^/@]*@", "USER:PASSWORD@", url)
