"""Start in isolation: no variable, user folder or working directory may put another `protocol` in place of ours."""

import importlib.util
import os
import sys
from pathlib import Path

PACKAGES = ("protocol", "rpc_server", "gepa_client", "sandbox_runtime")

_HOME = Path(__file__).resolve().parents[2]
# The folder is named because `-I` would not look into a checkout that was never installed.
_START = "import sys; {home!r} in sys.path or sys.path.insert(0, {home!r}); from rpc_server.cli import main; main()"


def isolate() -> None:
    """Begin again under `python -I`, with the same arguments, unless this is that."""
    if not sys.flags.isolated:
        sys.stdout.flush()
        start = _START.format(home=str(_HOME))
        os.execv(sys.executable, [sys.executable, "-I", "-c", start, *sys.argv[1:]])  # noqa: S606  # ourselves


def misplaced_package() -> str | None:
    """What to tell when one of our packages would be found elsewhere than beside this one; None when all is well."""
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            continue
        folder = Path(found.origin).resolve().parent.parent
        if folder != _HOME:
            return (
                f"the package `{name}` is found in {folder}, not beside `rpc_server` in {_HOME}: another distribution "
                f"uses the same name; install evolverpc into an environment of its own"
            )
    return None
