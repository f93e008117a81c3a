"""Check a release: `python scripts/check_release.py 0.2.0` fails unless both packages have this version.

The changelog must have a section of the version too.
"""

import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def faults(version: str) -> list[str]:
    """Return what does not fit the version."""
    python = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    npm = json.loads((ROOT / "clients/typescript/package.json").read_text(encoding="utf-8"))["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    return [
        *([f"pyproject.toml has version {python}"] if python != version else []),
        *([f"clients/typescript/package.json has version {npm}"] if npm != version else []),
        *([f"CHANGELOG.md has no section {version}"] if f"## {version}" not in changelog else []),
    ]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    found = faults(sys.argv[1])
    print("\n".join(found) or f"{sys.argv[1]}: both packages and the changelog agree")
    sys.exit(1 if found else 0)
