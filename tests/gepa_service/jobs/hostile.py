# ruff: noqa: B023, PTH103, PTH208, S310  each attempt is made at once; it means to do what is refused
"""A hostile optimizer: it tries to reach what is not its job's. Run with the context as JSON on stdin.

Each attempt returns what it got, which is a failure of the isolation, or raises. It prints one JSON object: for each
attempt what it got, None if it was denied.
"""

import json
import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

context = json.loads(sys.stdin.readline())
store, token = context["store"], Path(os.environ["GEPA_STORE_TOKEN_FILE"]).read_text().strip()
found = {}


def attempt(name, function):
    try:
        got = function()
    except (OSError, ValueError, KeyError) as error:
        found[name] = None
        print(name, type(error).__name__, error, file=sys.stderr)
    else:
        found[name] = repr(got)[:200]


def http(method, path, key=token, body=b"{}"):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(
        store + path, data=body if method != "GET" else None, headers=headers, method=method
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return answer.status, answer.read(200)


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as opened:
        opened.settimeout(2)
        opened.connect(address)
        return "connected"


def in_environments(word):
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                if word.encode() in (folder / name).read_bytes():
                    return str(folder / name)
            except OSError:
                continue
    raise ValueError("nowhere")


own = http("POST", f"/job/{context['job']}/journal/parts")
found["own journal"] = own[0]
found["own server"] = connect(socket.AF_INET, ("127.0.0.1", context["own_server_port"]))
for path in context["files"]:
    attempt(f"read {path}", lambda: Path(path).read_bytes()[:50] if not Path(path).is_dir() else os.listdir(path)[0])
for path in context["written"]:
    attempt(f"write {path}", lambda: Path(path).write_text("x"))
for host, port in context["hosts"]:
    attempt(f"connect {host}:{port}", lambda: connect(socket.AF_INET, (host, port)))
for path in context["sockets"]:
    attempt(f"connect {path}", lambda: connect(socket.AF_UNIX, path.replace("@", "\0", 1)))
for method, path in context["routes"]:
    attempt(f"{method} {path} by its token", lambda: http(method, path))
    attempt(f"{method} {path} without a key", lambda: http(method, path, None))
for word in context["words"]:
    attempt(f"find {word}", lambda: in_environments(word))
    attempt(
        f"environment {word}", lambda: next(iter([name for name in os.environ if word in os.environ[name]] or int("x")))
    )
for pid in context["pids"]:
    attempt(f"kill {pid}", lambda: os.kill(pid, 0))
attempt("become root", lambda: os.setuid(0))
attempt("mount", lambda: os.makedirs("/new") or "made")
attempt("ports outside", lambda: [port for port in range(1024, 1100) if connect(socket.AF_INET, ("10.0.0.1", port))])
print(json.dumps(found), flush=True)
