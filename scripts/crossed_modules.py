"""Print the modules of `gepa_client` that the evaluation of one example enters; the last line is JSON.

`python scripts/crossed_modules.py` starts a server on the loopback interface, opens a `RemoteAdapter`, evaluates one
example, and counts every module in which a function runs in between, on any thread. Nothing is recorded in a store:
the modules of a store lie below the journal.
"""

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gepa_client import RemoteAdapter, Row  # noqa: E402 - the package of this checkout

CLIENT = str(ROOT / "gepa_client") + "/"
DISCOVERY = {
    "protocol_versions": ["1"],
    "server": {"name": "loopback", "version": "1", "language": "python", "instance_id": "one"},
    "program": {"name": "echo", "components": [{"name": "prompt"}], "seed_candidate": {"prompt": "seed"}},
    "capabilities": ["idempotency", "async", "cancel", "refs"],
    "limits": {"max_concurrency": 4, "max_batch_size": 10, "max_request_bytes": 1 << 20},
    "datasets": {},
}
RESULT = {"status": "ok", "score": 1.0, "output": "text", "seconds": 0.001, "usage": {"cost_usd": 0.01}}


class LoopbackHandler(BaseHTTPRequestHandler):
    """Answer `discover` and `evaluate` with constants."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one JSON-RPC request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = DISCOVERY if request["method"] == "discover" else {"results": [RESULT]}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing."""


def crossed() -> list[str]:
    """Return the modules that one example crosses, as paths below `gepa_client`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), LoopbackHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    entered: set[str] = set()
    on = threading.Event()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and on.is_set() and path.startswith(CLIENT) and frame.f_code.co_name != "<module>":
            entered.add(path.removeprefix(CLIENT))

    profile: Callable[..., None] | None = note
    threading.setprofile(profile)  # of the adapter's own threads
    sys.setprofile(profile)
    try:
        with RemoteAdapter(f"http://127.0.0.1:{server.server_port}") as adapter:
            adapter.evaluate([Row("first", {"text": "a"})], {"prompt": "p"})  # opens the connection
            on.set()
            batch = adapter.evaluate([Row("second", {"text": "b"})], {"prompt": "p"})
            on.clear()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        server.shutdown()
        server.server_close()
    if batch.scores != [1.0]:
        raise SystemExit(f"the example was not evaluated: {batch}")
    return sorted(entered)


if __name__ == "__main__":
    modules = crossed()
    print("\n".join(modules))
    print(json.dumps({"crossed_by_one_example": len(modules)}))
