"""A server as small as can be, in place of `evolverpc serve`: run by any Python with its standard library."""

SOURCE = rb"""
import json, os, socket

def serve(connection):
    stream = connection.makefile("rwb")
    words = stream.readline().decode().split()
    if not words:
        return
    headers = {}
    for line in iter(stream.readline, b"\r\n"):
        if not line:
            return
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    shown = headers.get("x-gepa-token") or headers.get("authorization", "").removeprefix("Bearer ")
    status, answer = 404, {}
    if words[1] == "/health":
        status = 200
    elif words[1] == "/rpc" and shown != os.environ["GEPA_TOKEN"]:
        status = 401
    elif words[1] == "/rpc":
        asked = json.loads(body)
        if "exit" in asked:
            os._exit(asked["exit"])
        status, answer = 200, {"env": dict(os.environ), "cwd": os.getcwd(), "asked": asked}
    text = json.dumps(answer).encode()
    stream.write(b"HTTP/1.1 %d -\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
    stream.flush()
    stream.close()

where = os.environ["GEPA_LISTEN"]
if where.startswith("fd:"):
    listening = socket.socket(fileno=int(where[3:]))
else:
    host, _, port = where.rpartition(":")
    listening = socket.create_server((host, int(port)))
print("serving", flush=True)
while True:
    with listening.accept()[0] as connection:
        serve(connection)
"""
