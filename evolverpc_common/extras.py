"""Report which packages of an installation extra are missing. Imports none of them."""

import importlib.util

_EXTRAS = {
    "client": ("the optimizer's packages", ("aiohttp", "gepa", "litellm", "rich", "typer", "uvloop")),
    "server": ("the server's packages", ("aiohttp", "git", "jsonrpcserver", "platformdirs", "typer", "uvloop")),
}
"""For each extra: its description, and the modules that it installs by the names that are imported."""


def missing_packages(extra: str) -> str | None:
    """Return the message to print if packages of the extra are not installed; None if all are."""
    description, modules = _EXTRAS[extra]
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    return (
        f"{description} are not installed ({', '.join(absent)}): "
        f"run pip install '.[{extra}]' in the folder of evolverpc"
    )
