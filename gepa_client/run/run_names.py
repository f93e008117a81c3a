"""What a new run is called: an id that sorts by time and is the same on no two machines."""

import re
import secrets
import time

LONGEST = 60
"""Characters of a name that go into the id."""


def new_id(name: str | None = None) -> str:
    """`20250131-235959-1f3a`, with `-NAME` after it; in a name all but letters, digits, - and _ becomes -."""
    part = slug(name)
    # os randomness: GEPA's runs depend on the global generator
    own = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    return f"{own}-{part}" if part else own


def slug(name: str | None) -> str:
    """`name` as part of a path; empty where there is none."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name or "").strip("-")[:LONGEST]
