"""Whether the packages of the extra `client` are installed, and how to install them."""

import importlib.util

MODULES = ("aiohttp", "gepa", "litellm", "rich", "typer", "uvloop")
"""What the extra `client` installs, by the names that are imported."""


def missing() -> str | None:
    """What to print if packages are missing; None if all are there. Imports none of them."""
    absent = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return (
        f"the optimizer's packages are not installed ({', '.join(absent)}): "
        "run pip install '.[client]' in the folder of evolverpc"
    )
