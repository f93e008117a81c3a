"""The command `evolverpc`; each command loads only what it needs."""

import sys

from evolverpc_common.installation import missing_packages

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    absent = missing_packages("client")
    if absent is not None:
        sys.stderr.write(f"evolverpc: {absent}\n")
        sys.exit(2)
    from gepa_client.cli.app import main as run  # which needs the packages

    run()
