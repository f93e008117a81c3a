"""The command `gepa-server`: isolate first, import the rest after."""

import sys

from rpc_server.cli.extras import missing
from rpc_server.cli.isolation import isolate, misplaced_package


def main() -> None:
    """Run the command and exit with its status."""
    isolate()
    trouble = misplaced_package() or missing()
    if trouble is not None:
        sys.stderr.write(f"gepa-server: {trouble}\n")
        sys.exit(2)
    from rpc_server.cli.command import run

    run(sys.argv[1:])
