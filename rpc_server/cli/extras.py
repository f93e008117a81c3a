"""Whether the packages of the extra `server` are installed, and how to install them."""

import importlib.util

MODULES = ("aiohttp", "git", "jsonrpcserver", "platformdirs", "typer", "uvloop")
"""What the extra `server` installs, by the names that are imported."""


def missing() -> str | None:
    """What to print if packages are missing; None if all are there. Imports none of them."""
    absent = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return (
        f"the server's packages are not installed ({', '.join(absent)}): "
        "run pip install '.[server]' in the folder of evolverpc"
    )
