"""Requests as lines to paste into a shell: curl for HTTP, a pipe for stdio; the token is `$GEPA_TOKEN`."""

import json
import shlex
import tempfile

from gepa_client.conformance.case_language import as_json
from gepa_client.conformance.raw_transport import RawRequest, RawTransport
from gepa_client.conformance.stdio_transport import StdioTransport
from gepa_client.transport.address import TOKEN_VARIABLE, socket_of

NEWLINE = b"\n"
MAX_INLINE_BYTES = 4000
"""A body that is longer, or no text, is written to a file, which the line names."""


def as_command(transport: RawTransport | StdioTransport, request: RawRequest) -> str:
    """Return the request as a line to paste into a shell; a long body is written to a temporary file."""
    if isinstance(transport, StdioTransport):
        return _pipe_line(transport, request)
    return _curl_line(transport, request)


def _curl_line(transport: RawTransport, request: RawRequest) -> str:
    words = ["curl", "--silent", "--include"]
    if request.verb != "POST":
        words += ["--request", request.verb]
    if request.close_after_s is not None:
        words += ["--max-time", f"{request.close_after_s:g}"]
    socket = socket_of(transport.address)
    if socket is not None:
        words += ["--unix-socket", shlex.quote(socket)]
    words.append(_quoted(transport.url_of(request), transport.token))
    headers = transport.headers_of(request)
    for name, value in headers.items():
        words += ["--header", _quoted(f"{name}: {value}" if value else f"{name};", transport.token)]
    if "Content-Type" not in headers:
        words += ["--header", "Content-Type:"]
    if request.upload == "endless":
        printed = f"printf %s {shlex.quote(request.body.decode())}; head -c {request.upload_bytes} /dev/zero"
        words += ["--header", "'Transfer-Encoding: chunked'", "--data-binary", "@-"]
        return f"{{ {printed} | tr '\\0' ' '; }} | {' '.join(words)}"
    if request.upload == "chunked":
        words += ["--header", "'Transfer-Encoding: chunked'"]
    if request.body or request.verb == "POST":
        words += ["--data-binary", _body(request.body)]
    return " ".join(words)


def _pipe_line(transport: StdioTransport, request: RawRequest) -> str:
    messages = enumerate(transport.messages(json.loads(request.body)), 1)
    lines = [as_json({**message, "id": number}) for number, message in messages]
    if sum(map(len, lines)) > MAX_INLINE_BYTES:
        source = f"cat {_file(NEWLINE.join([*lines, b'']))}"
    else:
        source = f"printf '%s\\n' {' '.join(shlex.quote(line.decode()) for line in lines)}"
    return f"{{ {source}; sleep 2; }} | {transport.address}"


def without_token(text: str, token: str | None) -> str:
    """Return the text with the name of the variable in place of the token."""
    return text.replace(token, f"${TOKEN_VARIABLE}") if token else text


def _body(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and len(body) <= MAX_INLINE_BYTES and "\0" not in text and not text.startswith("@"):
        return shlex.quote(text)
    return f"@{_file(body)}"


def _file(content: bytes) -> str:
    with tempfile.NamedTemporaryFile(prefix="evolverpc-conformance-", suffix=".json", delete=False) as file:
        file.write(content)
    return shlex.quote(file.name)


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
