"""Send HTTP requests that no proper client sends: cut short, endless, without headers, each on its own connection.

Product calls use `gepa_client.transport.http_transport`. A conformance check needs what that file must never do: bodies
that never end or never come, absent headers, and connections closed in the middle.
"""

import asyncio
import shlex
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Self

import aiohttp
from multidict import CIMultiDict

from gepa_client.conformance.cases import HttpOverrides
from gepa_client.errors import AnswerTooLarge, summary
from gepa_client.transport.address import TOKEN_VARIABLE, find_token, http_url, rpc_url, socket_of
from gepa_client.transport.http_transport import bounded_body, connector, unconnected

MAX_ANSWER_BYTES = 256 * 2**20
CHUNK_BYTES = 64 * 1024
MAX_INLINE_BYTES = 4000
"""A body that is longer, or no text, is written to a file, which the line of a shell names."""

AUTOMATIC = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")


class NoAnswer(Exception):
    """No answer: the connection was closed or never made, the time was over, or the answer had no end."""


class NotConnected(NoAnswer):
    """No server listens at the address: nothing was sent."""


@dataclass(frozen=True)
class RawRequest:
    """A request as it is sent: its body, and how it differs from others.

    `upload_bytes`: the length that a withheld upload declares, and at which an endless one ends: blanks follow its
    body. `close_after_s`: when the connection was closed, for what shows the request.
    """

    body: bytes
    http: HttpOverrides = field(default_factory=HttpOverrides)
    upload_bytes: int = 0
    close_after_s: float | None = None


@dataclass(frozen=True)
class RawAnswer:
    """What came back: HTTP status, headers by lower-case name, body, seconds until all of it was there."""

    status: int
    headers: dict[str, str]
    body: bytes
    elapsed_s: float


class RawTransport:
    """Raw HTTP to one endpoint, at `address`. Open it with `async with`; every request has a connection of its own.

    Raises:
        Refused: the address or token cannot be used; see `gepa_client.transport.address`.
    """

    def __init__(self, url: str, token: str | None, *, allow_insecure: bool = False) -> None:
        self.address = rpc_url(url, allow_insecure=allow_insecure)
        self.token = find_token(token)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=connector(self.address, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def url_of(self, request: RawRequest) -> str:
        """Return the whole address that a request goes to, of a unix socket that of its host."""
        url = http_url(self.address)
        if request.http.path is not None:
            url = url.removesuffix("/rpc") + request.http.path
        return f"{url}?{request.http.query}" if request.http.query else url

    async def send(self, request: RawRequest, *, timeout_s: float) -> RawAnswer:
        """Send one request.

        Raises:
            NoAnswer: no complete answer within `timeout_s`.
        """
        if self._session is None:
            raise RuntimeError("the transport is not open")
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._session.request(
                    request.http.verb,
                    self.url_of(request),
                    data=_content(request),
                    headers=self.headers_of(request),
                    skip_auto_headers=AUTOMATIC,
                    allow_redirects=False,
                )
                try:
                    read = await bounded_body(response, MAX_ANSWER_BYTES)
                finally:
                    response.close()
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {timeout_s:g} s") from error
        except AnswerTooLarge as error:
            raise NoAnswer(str(error)) from error
        except aiohttp.ClientConnectorError as error:
            raise NotConnected(unconnected(self.address, error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"the connection was lost ({summary(error)})") from error
        return RawAnswer(
            status=response.status,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=read,
            elapsed_s=time.monotonic() - started,
        )

    def shell_line(self, request: RawRequest) -> str:
        """Return the request as a line to paste into a shell, by curl; the token is `$GEPA_TOKEN`."""
        words = ["curl", "--silent", "--include"]
        if request.http.verb != "POST":
            words += ["--request", request.http.verb]
        if request.close_after_s is not None:
            words += ["--max-time", f"{request.close_after_s:g}"]
        socket = socket_of(self.address)
        if socket is not None:
            words += ["--unix-socket", shlex.quote(socket)]
        words.append(_quoted(self.url_of(request), self.token))
        headers = self.headers_of(request)
        for name, value in headers.items():
            words += ["--header", _quoted(f"{name}: {value}" if value else f"{name};", self.token)]
        if "Content-Type" not in headers:
            words += ["--header", "Content-Type:"]
        if request.http.upload == "endless":
            printed = f"printf %s {shlex.quote(request.body.decode())}; head -c {request.upload_bytes} /dev/zero"
            words += ["--header", "'Transfer-Encoding: chunked'", "--data-binary", "@-"]
            return f"{{ {printed} | tr '\\0' ' '; }} | {' '.join(words)}"
        if request.http.upload == "chunked":
            words += ["--header", "'Transfer-Encoding: chunked'"]
        if request.body or request.http.verb == "POST":
            words += ["--data-binary", _body(request.body)]
        return " ".join(words)

    def headers_of(self, request: RawRequest) -> CIMultiDict[str]:
        """Return the headers that a request has."""
        headers: dict[str, str | list[str] | None] = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if request.http.upload == "withheld":
            headers["Content-Length"] = str(request.upload_bytes)
        headers.update(request.http.headers)
        sent = CIMultiDict[str]()
        for name, value in headers.items():
            for one in value if isinstance(value, list) else () if value is None else (value,):
                sent.add(name, one)
        return sent


def _content(request: RawRequest) -> BytesIO | AsyncIterator[bytes] | None:
    if request.http.upload == "chunked":
        return _chunked(request.body)
    if request.http.upload == "withheld":
        return _withheld(request.body)
    if request.http.upload == "endless":
        return _endless(request.body, request.upload_bytes)
    return BytesIO(request.body) if request.body else None


async def _chunked(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body in two pieces, so that its length is not declared."""
    half = len(body) // 2
    for piece in (body[:half], body[half:]):
        if piece:
            yield piece


async def _withheld(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body, then wait until it is cancelled."""
    yield body
    await asyncio.Event().wait()


async def _endless(body: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield the body, and blanks after it until `size` bytes have been sent."""
    yield body
    blanks = b" " * CHUNK_BYTES
    for _ in range(size // CHUNK_BYTES + 1):
        yield blanks


def _body(body: bytes) -> str:
    """Return the body as a word of a shell for curl; that of a temporary file, which stays, if it cannot be inline."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and len(body) <= MAX_INLINE_BYTES and "\0" not in text and not text.startswith("@"):
        return shlex.quote(text)
    with tempfile.NamedTemporaryFile(prefix="evolverpc-conformance-", suffix=".json", delete=False) as file:
        file.write(body)
    return f"@{shlex.quote(file.name)}"


def _quoted(text: str, token: str | None) -> str:
    """Return the text as one word of a shell, in which a variable stands for the token, and for a form of it."""
    if not token:
        return shlex.quote(text)
    name = TOKEN_VARIABLE
    forms = {token: f"${{{name}}}", token[:-1]: f"${{{name}%?}}"}
    forms.setdefault(token.swapcase(), f'$(printf %s "${name}" | tr a-zA-Z A-Za-z)')
    form = next((form for form in forms if form and form in text), None)
    if form is None:
        return shlex.quote(text)
    around = [part.translate({ord(special): f"\\{special}" for special in '\\"$`'}) for part in text.split(form)]
    ends_word = form == token and around[1:] == [""]
    return f'"{(f"${name}" if ends_word else forms[form]).join(around)}"'
