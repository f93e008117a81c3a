"""The versions of the contract that this code speaks, and its generated documents."""

from pathlib import Path

KNOWN_VERSIONS: tuple[str, ...] = ("1",)
CURRENT_VERSION: str = KNOWN_VERSIONS[-1]

SCHEMA_DIR = Path(__file__).parent / "schema"
SCHEMA_FILE = f"v{CURRENT_VERSION}.json"
OPENRPC_FILE = "openrpc.json"
