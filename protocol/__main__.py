"""`python -m protocol` writes the OpenRPC document of the contract; `--check` fails if it has drifted."""

import argparse
import sys

from protocol import generate
from protocol.methods import CONTRACT_FILE


def main() -> int:
    """Return the exit status: 0 if the file matches the models."""
    parser = argparse.ArgumentParser(prog="python -m protocol", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is out of date")
    if parser.parse_args().check:
        if generate.drifted():
            print(f"{CONTRACT_FILE} differs from the models in protocol/; run: python -m protocol", file=sys.stderr)
            return 1
        return 0
    generate.write()
    print(CONTRACT_FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
