"""A server of a few lines for the sandboxes of these tests, quicker to start than the real one."""

from typing import Any

from sandbox_runtime import Command, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends import image_setup
from sandbox_runtime.backends.own_packages import name_of
from tests.support.modal_cloud import Cloud

WAIT_S = 60.0
"""Within which something must come to pass, however busy the machine is."""

SERVER = """
import os, socket
host, port = os.environ["GEPA_LISTEN"].split(":")
listening = socket.create_server((host, int(port)))
print("serving", flush=True)
while True:
    connection, _ = listening.accept()
    with connection:
        asked = connection.recv(65536)
        head = "HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(asked)
        connection.sendall(head.encode() + asked)
    if asked.startswith(b"GET /end"):
        raise SystemExit(5)
"""
"""Answers every request with the request; ends after one for /end."""

MAIN = Command((image_setup.SERVER_PYTHON, "-I", "-S", "-c", SERVER))


def published(cloud: Cloud, recipe: Recipe | None = None) -> PreparedEnvironment:
    """A recipe that the cloud has an image of, without the building."""
    recipe = recipe or Recipe()
    image = f"im-{recipe.digest}"[:25]
    cloud.control.images[image].SetInParent()
    cloud.control.published[name_of(recipe)] = image
    return image_setup.prepared(recipe, image)


def spec(cloud: Cloud, *, main: Command = MAIN, **further: Any) -> SandboxSpec:
    """A sandbox that serves."""
    return SandboxSpec(main=main, prepared=published(cloud), **further)
