"""Where the generated documents are; reading them needs nothing of what writes them."""

from pathlib import Path

from protocol.versions import CURRENT_VERSION

SCHEMA_DIR = Path(__file__).parent / "schema"
SCHEMA_FILE = f"v{CURRENT_VERSION}.json"
OPENRPC_FILE = "openrpc.json"
