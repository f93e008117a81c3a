"""The installation: its version, packages that it lacks, and modules of a user that hide its own."""

import importlib.util
import os
import sys
from pathlib import Path

_EXTRAS = {
    "client": ("the optimizer's packages", ("aiohttp", "gepa", "litellm", "rich", "typer", "uvloop")),
    "server": (
        "the server's packages",
        ("aiohttp", "git", "jsonrpcserver", "platformdirs", "typer", "uvloop"),
    ),
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


def installed_version() -> str:
    """Return the version of the distribution; `0+checkout` in a folder that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and most commands do without

    try:
        return version("evolverpc")
    except PackageNotFoundError:
        return "0+checkout"


def stated_version() -> str:
    """Return what `--version` prints: the version, and which package this is."""
    return f"evolverpc {installed_version()} (Python package in {_HOME})"


PACKAGES = ("protocol", "rpc_server", "gepa_client", "gepa_service", "sandbox_runtime", "evolverpc_common", "evolverpc")
"""The packages that one distribution installs at the top level, where a user's module may have the same name."""

_HOME = Path(__file__).resolve().parents[1]


def find_collision() -> str | None:
    """Return what to print if one of our packages would be imported from elsewhere than beside this one; else None."""
    for name in PACKAGES:
        try:
            found = importlib.util.find_spec(name)
        except ValueError:  # a module of this name that has no spec, such as one made by a test
            continue
        if found is None or found.origin is None:
            continue  # not installed, or a folder without `__init__.py`, which any package comes before
        origin = Path(found.origin).resolve()
        if origin.parent.parent == _HOME:
            continue
        return _message(name, origin)
    return None


def _message(name: str, origin: Path) -> str:
    package = origin.name == "__init__.py"
    taken = origin.parent if package else origin
    folder = taken.parent
    listed = [Path(part).resolve() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if "site-packages" in folder.parts:
        remedy = "another distribution uses the same name; install evolverpc into an environment of its own"
    elif folder in listed and not sys.flags.ignore_environment:
        remedy = f"rename it, or remove {folder} from PYTHONPATH"
    else:
        remedy = "rename it, or move it out of the folder of the script that you run"
    return f"{taken} would be imported in place of the package `{name}` of evolverpc in {_HOME}: {remedy}"
