"""Requests to hosts with a secret header: the host sees the secret, the sandbox never does."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from sandbox_runtime.api.spec import Open
from sandbox_runtime.gateway import SecretHeader
from tests.sandbox_runtime.gateway.conftest import Opens, Recorded, Sandbox, sandbox
from tests.sandbox_runtime.gateway.stub_provider import Answer, replying
from tests.support.web_hosts import web_host

SECRET = "the-real-secret-0123456789"


@dataclass
class Api:
    """A host behind TLS that records the requests it gets, and how a client trusts it."""

    host: str
    seen: list[tuple[str, str, list[tuple[str, str]], bytes]]
    trust: ssl.SSLContext
    answer: Answer

    def header(self, name: str = "Authorization", prefix: str = "Bearer ") -> SecretHeader:
        return SecretHeader(self.host, name, SECRET, prefix)

    def url(self, one: Sandbox) -> str:
        """The address that a program finds in its environment."""
        return one.session.env(one.models, one.tunnel)[self.header().variable]


def server_context(folder: Path, name: str = "127.0.0.1") -> ssl.SSLContext:
    """TLS of a host, by an authority whose certificate is in the folder."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "certificate.pem")
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(served)
    return served


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    served = server_context(tmp_path)
    trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    api = Api("", [], trust, replying(200, b"ok"))

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read() if request.path != "/echo" else b""
        api.seen.append((request.method, request.raw_path, list(request.headers.items()), body))
        return await api.answer(request)

    async with web_host(handle, served) as api.host:
        yield api


async def test_the_host_gets_the_secret_in_place_of_the_programs_header_and_the_program_never_sees_it(
    opened: Opens, api: Api, http: aiohttp.ClientSession, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = f"your token is {SECRET} {SECRET[:4]}".encode()
    api.answer = replying(418, text, {"X-Seen": f"Bearer {SECRET}", "X-Other": "kept"})
    headers = {"authorization": "Bearer mine", "Content-Encoding": "aes128gcm", "Connection": "X-Hop", "X-Hop": "b"}
    async with opened(secret_headers=(api.header(), api.header("X-Key", "")), tls=api.trust) as gateway:
        one = await sandbox(gateway)
        env, token = str(one.session.env(one.models, one.tunnel)), one.token
        async with http.put(f"{api.url(one)}/v1/things?q=1&q=2", data=b"body", headers=headers) as response:
            assert (response.status, await response.read()) == (418, f"your token is [redacted] {SECRET[:4]}".encode())
            assert (response.headers["X-Seen"], response.headers["X-Other"]) == ("Bearer [redacted]", "kept")
        await one.session.close()
        everything = repr((gateway, vars(gateway), one.session, recorded))
    ((method, path, sent, body),) = api.seen
    assert (method, path, body) == ("PUT", "/v1/things?q=1&q=2", b"body")
    named = {name.lower(): value for name, value in sent}
    assert [value for name, value in sent if name.lower() == "authorization"] == [f"Bearer {SECRET}"]
    assert (named["x-key"], named["content-encoding"], named["host"]) == (SECRET, "aes128gcm", api.host)
    assert "x-hop" not in named and token not in str(sent)
    assert SECRET not in env + everything + caplog.text
    (connection,) = recorded.connections
    found = (connection.method, f"{connection.host}:{connection.port}", connection.sent, connection.received)
    assert found == ("PUT", api.host, 4, len(text))
    assert connection.reached and 0 < connection.seconds < 60


async def test_bodies_stream_in_both_directions(opened: Opens, api: Api, http: aiohttp.ClientSession) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        return response

    parts: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while part := await parts.get():
            yield part

    api.answer = echo
    parts.put_nowait(b"one")
    async with opened(secret_headers=(api.header(),), tls=api.trust) as gateway:
        one = await sandbox(gateway)
        async with asyncio.timeout(30), http.post(f"{api.url(one)}/echo", data=body()) as response:
            assert await response.content.readexactly(3) == b"one"
            parts.put_nowait(b"two")  # only now: the first part has come back while the request was still being sent
            assert await response.content.readexactly(3) == b"two"
            parts.put_nowait(b"")
            assert await response.content.read() == b""


async def test_a_redirect_is_handed_back_with_the_address_of_the_host(
    opened: Opens, api: Api, http: aiohttp.ClientSession
) -> None:
    api.answer = replying(302, b"", {"Location": "/elsewhere"})
    async with opened(secret_headers=(api.header(),), tls=api.trust) as gateway:
        one = await sandbox(gateway)
        async with http.get(api.url(one), allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (302, f"https://{api.host}/elsewhere")
    assert [path for _, path, _, _ in api.seen] == ["/"]


async def test_a_host_whose_certificate_is_not_trusted_gets_no_secret(
    opened: Opens, api: Api, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async with opened(secret_headers=(api.header(),)) as gateway:
        one = await sandbox(gateway)
        async with http.get(api.url(one)) as response:
            assert response.status == 502 and "cannot be reached" in await response.text()
    assert api.seen == [] and [each.reached for each in recorded.connections] == [False]


async def test_another_host_token_or_method_is_refused_and_the_report_has_no_token(
    opened: Opens, api: Api, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async with opened(secret_headers=(api.header(),), tls=api.trust) as gateway:
        one, two = await sandbox(gateway, Open()), await sandbox(gateway, name="sandbox-2")
        url = api.url(one)
        for wrong, method, status in (
            (url.replace(api.host, "elsewhere.example"), "GET", 403),
            (url.replace(one.token, two.token), "GET", 401),
            (url.replace(api.host, f"{api.host}@elsewhere.example"), "GET", 403),
            (f"{url}/a/%23#b", "TRACE", 405),
            (url.rpartition("/")[0], "GET", 403),
            (url, "TRACE", 405),
        ):
            async with http.request(method, wrong) as response:
                assert (wrong, response.status) == (wrong, status)
        found, tokens = str(recorded.refusals), (one.token, two.token)
    assert api.seen == [] and recorded.connections == []
    assert "GET elsewhere.example" in found and not any(token in found for token in tokens)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"host": "https://a.example"}, "is not a host"),
        ({"host": "a.example:99999"}, "is not a host"),
        ({"header": "Host"}, "can carry a secret"),
        ({"header": "X Key"}, "can carry a secret"),
        ({"secret": f"{SECRET}\n"}, "line break"),
        ({"secret": ""}, "is empty"),
    ],
)
def test_a_header_that_cannot_be_is_refused_without_its_secret(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        SecretHeader(**{"host": "a.example", "header": "X-Key", "secret": SECRET, **wrong})
    assert SECRET not in str(caught.value)


async def test_two_headers_of_one_name_and_two_hosts_of_one_variable_are_refused(opened: Opens) -> None:
    one, same = SecretHeader("a.example", "X-Key", SECRET), SecretHeader("a.example", "x-key", "other")
    with pytest.raises(ValueError, match=r"x-key of a.example is given twice"):
        opened(secret_headers=(one, same))
    with pytest.raises(ValueError, match=r"both a.example and a-example in GATEWAY_URL_A_EXAMPLE"):
        opened(secret_headers=(one, SecretHeader("a-example", "X-Key", SECRET)))
