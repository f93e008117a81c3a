"""What the import of a server leaves out."""

import json
import subprocess
import sys

ANSWERED = """
import asyncio, json, sys
from rpc_server.rpc.dispatch import Dispatcher

async def twice(params):
    return 2 * params["n"]

asked = {"jsonrpc": "2.0", "method": "twice", "params": {"n": 4}, "id": 1}
reply = asyncio.run(Dispatcher({"twice": twice}, max_batch_entries=2).answer(json.dumps(asked).encode()))
assert not [name for name in sys.modules if name.startswith("jsonschema")], "an eighth of a server's start"
print(reply.body.decode())
"""


def test_requests_are_answered_without_jsonschema() -> None:
    done = subprocess.run([sys.executable, "-c", ANSWERED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "result": 8, "id": 1}
