"""`python -m protocol` writes the schema and the OpenRPC document; `--check` fails where they have drifted."""

import argparse
import sys

from protocol import generate


def main() -> int:
    """Return the exit status: 0 if the files match the models."""
    parser = argparse.ArgumentParser(prog="python -m protocol", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    if parser.parse_args().check:
        drifted = generate.drifted()
        for path in drifted:
            print(f"{path} differs from the models in protocol/; run: python -m protocol", file=sys.stderr)
        return 1 if drifted else 0
    for path in generate.write():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
