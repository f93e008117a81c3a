"""Entry points of the console scripts, outside of the packages that a user's module may hide.

The commands are imported by name once it is certain that Python finds them: this package imports none above it.
"""

import sys
from importlib import import_module

from evolverpc_common.installation import find_collision


def gepa_client() -> None:
    """Run the command `gepa-client`."""
    _run("gepa-client", "gepa_client.cli")


def gepa_server() -> None:
    """Run the command `gepa-server`."""
    _run("gepa-server", "rpc_server.cli")


def gepa_service() -> None:
    """Run the command `gepa-service`."""
    _run("gepa-service", "gepa_service.cli")


def _run(command: str, module: str) -> None:
    collision = find_collision()
    if collision is not None:
        sys.stderr.write(f"{command}: {collision}\n")
        sys.exit(2)
    import_module(module).main()
