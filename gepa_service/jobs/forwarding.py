"""Forward HTTP requests of a driver or sandbox to one server, and replace a tenant's secrets in its answers."""

from collections.abc import Collection, Mapping

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from evolverpc_common.redaction import Secrets

CONNECT_S = 30.0
LARGEST_ANSWER = 64 << 20
"""Bytes of an answer in which secrets are replaced; the client of a server accepts no larger one."""

OF_ONE_HOP = (
    *("Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer"),
    *("Transfer-Encoding", "Upgrade"),
)


def forwarding_session(connector: aiohttp.BaseConnector, total_s: float | None = None) -> aiohttp.ClientSession:
    """Return a session for `forwarded`. `total_s`: of one request with its answer; None for no limit."""
    timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S)
    return aiohttp.ClientSession(
        connector=connector, auto_decompress=False, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    )


async def forwarded(
    request: web.Request,
    client: aiohttp.ClientSession,
    url: str,
    secrets: Secrets | None = None,
    names: Collection[str] | None = None,
) -> web.StreamResponse:
    """Return the answer of the server at `url`. It is streamed, or if there are `secrets`, read and passed on whole.

    If the server breaks off within a streamed answer, the connection of the request is closed, so that the client does
    not take the part for the whole.

    `names`: of the headers that are passed on, in lower case; None for all.

    Raises:
        web.HTTPBadGateway: the server does not answer, or not in a form in which secrets can be replaced.
    """
    without = ("Host",) if secrets is None else ("Host", "Accept-Encoding")
    reply: web.StreamResponse | None = None
    try:
        async with client.request(
            request.method,
            URL(url, encoded=True),
            headers=_onward(request.headers, *without, only=names),
            skip_auto_headers=("Accept-Encoding",),
            data=request.content if request.can_read_body else None,
            allow_redirects=False,
        ) as answer:
            if secrets is not None:
                return await _redacted(answer, secrets)
            reply = web.StreamResponse(status=answer.status, headers=_onward(answer.headers))
            await reply.prepare(request)
            async for piece in answer.content.iter_any():
                await reply.write(piece)
            await reply.write_eof()
            return reply
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        if reply is None or not reply.prepared:
            raise web.HTTPBadGateway(text="the server behind this address does not answer") from None
        if request.transport is not None:
            request.transport.close()
        return reply


async def _redacted(answer: aiohttp.ClientResponse, secrets: Secrets) -> web.Response:
    headers = _onward(answer.headers, "Content-Length")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise web.HTTPBadGateway(text="the server compressed its answer, which was not asked for")
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > LARGEST_ANSWER:
            answer.close()
            raise web.HTTPBadGateway(text=f"the server answers with more than {LARGEST_ANSWER >> 20} MB")
    return web.Response(status=answer.status, headers=headers, body=secrets.redact_json(bytes(body)))


def _onward(headers: Mapping[str, str], *without: str, only: Collection[str] | None = None) -> "CIMultiDict[str]":
    kept: CIMultiDict[str] = CIMultiDict(
        (name, value) for name, value in headers.items() if only is None or name.lower() in only
    )
    for name in (*OF_ONE_HOP, *without):
        kept.popall(name, None)
    return kept
