"""The command `gepa-server`: isolate first, import the rest after."""

import sys

from evolverpc_common.installation import find_collision, missing_packages
from rpc_server.cli.isolation import isolate


def main() -> None:
    """Run the command and exit with its status."""
    isolate()
    trouble = find_collision() or missing_packages("server")
    if trouble is not None:
        sys.stderr.write(f"gepa-server: {trouble}\n")
        sys.exit(2)
    from rpc_server.cli.flags import run

    run(sys.argv[1:])
