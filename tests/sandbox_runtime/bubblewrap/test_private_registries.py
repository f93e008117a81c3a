"""Builds that use package registries with a password: the gateway adds it, and the build never sees it."""

import json
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sandbox_runtime import Recipe
from sandbox_runtime.api.spec import Allow
from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_runtime.environments.build_folder import build_variables
from sandbox_runtime.environments.cache import EnvironmentCache
from sandbox_runtime.gateway import Gateway, GatewayPolicy, registry_headers
from tests.sandbox_runtime.backend import BackendUnderTest
from tests.sandbox_runtime.environments.test_node import program
from tests.sandbox_runtime.environments.wheels import exists, local_package, packed
from tests.sandbox_runtime.gateway.test_secret_headers import server_context
from tests.support.web_hosts import web_host

PASSWORD = "hidden"
SECRET = b64encode(b"me:hidden").decode()
HOST = "registry.example"  # which the gateway finds on loopback
LOOKS = f"""
import glob, os, subprocess, sys
publish = "import os, urllib.request as http; http.urlopen(os.environ['UV_DEFAULT_INDEX'], b'package')"
assert "405" in subprocess.run([sys.executable, "-c", publish], capture_output=True, text=True).stderr
seen = str(os.environ)
for path in glob.glob("/proc/[0-9]*/environ"):
    seen += open(path, errors="replace").read() if os.access(path, os.R_OK) else ""
assert "HTTPS_PROXY" in seen and {PASSWORD!r} not in seen and {SECRET!r} not in seen
"""
LOOKS_TOO = "node -e 'if (JSON.stringify(process.env).includes(`hid` + `den`)) process.exit(9)' && echo run > ran"


@asynccontextmanager
async def registry(tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    """A registry of Python's and npm's packages that wants a password, which its address has."""
    manifest = {"name": "looks", "version": "1.0.0", "scripts": {"install": LOOKS_TOO}}
    looks = local_package("", "looks", "")
    looks |= {"backend.py": LOOKS + looks["backend.py"], "PKG-INFO": "Metadata-Version: 2.1\nName: looks\nVersion: 1\n"}
    contents = {
        "/looks.tgz": packed({"package.json": json.dumps(manifest)}, "package/"),
        "/looks-1.tar.gz": packed(looks, "looks-1/"),
    }

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Basic {SECRET}":
            return web.Response(status=401)
        if request.path == "/npm/looks":
            dist = {"tarball": f"{request.scheme}://{request.host}/looks.tgz"}
            return web.json_response({"name": "looks", "versions": {"1.0.0": {**manifest, "dist": dist}}})
        if request.path == "/simple/looks/":  # the whole address, as registries give
            link = f"<a href='{request.scheme}://{request.host}/looks-1.tar.gz'>looks-1.tar.gz</a>"
            return web.Response(text=link, content_type="text/html")
        return web.Response(body=contents.get(request.path), status=200 if request.path in contents else 404)

    async with web_host(answer, tls) as host:
        yield f"{'http' if tls is None else 'https'}://me:{PASSWORD}@{HOST}:{host.rpartition(':')[2]}"


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_packages_are_built_from_a_registry_whose_password_no_build_sees(
    backend: BackendUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    assert isinstance(backend.runtime, BubblewrapBackend)
    tls = server_context(tmp_path, HOST) if scheme == "https" else None
    trusted = ssl.create_default_context(cafile=tmp_path / "certificate.pem") if tls else None
    backend.runtime._environments = EnvironmentCache(tmp_path / "environments")
    resolve = socket.getaddrinfo
    here = {HOST: "127.0.0.1"}
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **named: resolve(here.get(host, host), *rest, **named)
    )
    async with registry(tls) as url:
        for name in build_variables(os.environ):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/simple")
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{url}/npm/")
        parts = {"providers": (), "policy": GatewayPolicy(), "report": lambda _: None, "tls": trusted}
        async with Gateway(**parts, registry_headers=registry_headers(build_variables(os.environ), print)) as gateway:
            backend.runtime._build_session = gateway.open_session("builds", Allow(domains=(HOST,)))
            await backend.runtime.prepare(Recipe(packages=("looks",)), on_progress=print)
            files = {"package.json": '{"dependencies": {"looks": "1.0.0"}}'}
            built = await backend.runtime.prepare(program(files, ""), on_progress=print)
    assert exists(f"{built.env['NODE_PATH']}/looks/ran")


@pytest.mark.parametrize(
    ("sources", "hosts"),
    [
        ({"UV_INDEX": "own=https://a.example/simple", "UV_INDEX_OWN_PASSWORD": "p"}, ["https a.example OnA="]),
        ({"PIP_EXTRA_INDEX_URL": "https://u:p%40@a.example:8443 https://b.example"}, ["https a.example:8443 dTpwQA=="]),
        ({"UV_FIND_LINKS": "http://u@a.example/x", "HTTPS_PROXY": "http://u:p@b.example"}, ["http a.example:80 dTo="]),
    ],
)
def test_each_password_goes_to_the_host_beside_which_it_stands(sources: dict[str, str], hosts: list[str]) -> None:
    found = registry_headers(build_variables(sources), print)
    assert [f"{each.scheme} {each.host} {each.secret}" for each in found] == hosts


def test_a_password_for_an_address_that_only_a_repository_could_give_is_not_used() -> None:
    reported: list[str] = []
    assert registry_headers({"UV_INDEX_OWN_PASSWORD": "hidden"}, reported.append) == []
    assert "UV_INDEX='own=https://...'" in reported[0]
