"""HTTP of the reference server: refused requests, body parsing, responses."""

import hmac
import json
import re
from typing import Any

from aiohttp import web

from protocol import JsonValue
from protocol.errors import InvalidRequest, LimitExceeded, ParseError, RpcError, Unauthorized
from tests.conformance.reference_params import LIMITS
from tests.conformance.reference_program import Bad

TOKEN = "reference-token-0123456789"
NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class HttpLayer:
    """Accepts requests or responds with the refusal."""

    def __init__(self, bad: Bad) -> None:
        self.bad = bad

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the HTTP response to a request that never reaches JSON-RPC, or `None`."""
        checks = [self.wrong_host, self.wrong_origin, self.wrong_token, self.wrong_address]
        if self.bad("host_after_token"):
            checks = [self.wrong_token, self.wrong_host, self.wrong_origin, self.wrong_address]
        for check in checks:
            refused = check(request)
            if refused is not None:
                return refused
        return None

    def wrong_host(self, request: web.Request) -> web.Response | None:
        host = request.headers.get("Host", "")
        pattern = r"(localhost|127\.0\.0\.1|\[::1\])" + (".*" if self.bad("host_prefix") else r"(:\d+)?")
        if re.fullmatch(pattern, host) or self.bad("any_host"):
            return None
        if self.bad("host_after_token") and request.path == "/health":
            return None
        return self.refuse(403, Unauthorized(reason="host"))

    def wrong_origin(self, request: web.Request) -> web.Response | None:
        if "Origin" not in request.headers or self.bad("any_origin"):
            return None
        if request.method == "OPTIONS" and self.bad("cors_for_all"):
            return web.Response(status=204, headers={"Access-Control-Allow-Origin": "*"})
        return self.refuse(403, Unauthorized(reason="origin"))

    def wrong_token(self, request: web.Request) -> web.Response | None:
        if request.path == "/health" and not self.bad("health_needs_token"):
            return None
        header = ", ".join(request.headers.getall("Authorization", [""]))
        if self.bad("first_authorization_counts"):
            header = request.headers.get("Authorization", "")
        scheme, _, given = header.partition(" ")
        right = scheme == "Bearer" and hmac.compare_digest(given.encode(), TOKEN.encode())
        lenient = {
            "optional_token": not header,
            "any_token": bool(header),
            "token_prefix": len(given) > 3 and TOKEN.startswith(given),
            "token_start": given.startswith(TOKEN),
            "token_ending": len(given) == len(TOKEN) and given[:-1] == TOKEN[:-1],
            "any_scheme": header.split(" ")[-1] == TOKEN,
            "token_in_query": TOKEN in request.query_string,
        }
        if right or any(self.bad(defect) for defect, lets_in in lenient.items() if lets_in):
            return None
        challenge = {} if self.bad("no_challenge") else {"WWW-Authenticate": "Bearer"}
        error = Unauthorized(f"unknown token {given}" if self.bad("echoes_token") else None)
        return self.refuse(401, error, challenge)

    def wrong_address(self, request: web.Request) -> web.Response | None:
        if request.path == "/health":
            return None
        if request.path != "/rpc" and not self.bad("any_path"):
            return self.refuse(404, InvalidRequest(reason="no such path"))
        if request.method != "POST" and not self.bad("any_verb"):
            return self.refuse(
                405, InvalidRequest(reason="POST only"), {} if self.bad("no_allow") else {"Allow": "POST"}
            )
        kind = request.headers.get("Content-Type", "")
        plain = kind if self.bad("exact_content_type") else kind.partition(";")[0].strip().lower()
        if plain != "application/json" and not self.bad("any_content_type"):
            return self.refuse(415, InvalidRequest(reason="application/json only"))
        if request.headers.get("Content-Encoding", "identity") != "identity" and not self.bad("any_encoding"):
            return self.refuse(415, InvalidRequest(reason="no Content-Encoding"))
        if request.headers.get("Expect", "100-continue") != "100-continue" and not self.bad("any_expectation"):
            return self.refuse(417, InvalidRequest(reason="100-continue only"))
        if request.content_length is None and self.bad("needs_length"):
            return self.refuse(411, InvalidRequest(reason="length required"))
        return None

    async def body(self, request: web.Request) -> bytes:
        limit = 2**20 if self.bad("one_megabyte") else LIMITS["max_request_bytes"]
        stated: dict[str, Any] = {} if self.bad("limit_unnamed") else {"limit": "max_request_bytes", "allowed": limit}
        declared = request.content_length or 0
        if declared > limit and not self.bad("reads_everything"):
            raise LimitExceeded(**stated)
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > limit and not self.bad("unbounded_chunks"):
                raise LimitExceeded(**stated)
            chunks.append(chunk)
        return b"".join(chunks)

    def read(self, body: bytes) -> JsonValue:
        if not body.strip() and self.bad("empty_is_invalid_request"):
            raise InvalidRequest
        if not self.bad("no_nesting_limit"):
            depth = 0
            for token in NESTING.finditer(body):
                depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token.group(), 0)
                if depth > (50 if self.bad("nesting_limit_50") else 200):
                    raise ParseError
        try:
            text = body.decode("utf-8", "replace" if self.bad("lenient_utf8") else "strict")
            if self.bad("reads_first_value"):
                return json.JSONDecoder().raw_decode(text)[0]
            value = json.loads(text, parse_constant=None if self.bad("reads_nan") else self.no_constant)
            if not self.bad("reads_half_pairs"):
                json.dumps(value, ensure_ascii=False).encode()  # a ValueError for half of a surrogate pair
            return value
        except ValueError as error:
            raise ParseError from error

    def no_constant(self, name: str) -> None:
        raise ValueError(name)

    def respond(self, status: int, message: JsonValue, headers: dict[str, str] | None = None) -> web.Response:
        text = json.dumps(message, sort_keys=self.bad("sorts_keys"))
        kind = "text/plain" if self.bad("answers_text_plain") else "application/json"
        return web.Response(status=status, text=text, content_type=kind, headers=headers)

    def refuse(self, status: int, error: RpcError, headers: dict[str, str] | None = None) -> web.Response:
        if self.bad("plain_refusals") and status not in (401, 403, 413):
            return web.Response(status=status, text="no", headers=headers)
        return self.respond(status, {"jsonrpc": "2.0", "id": None, "error": self.wire(error)}, headers)

    def wire(self, error: RpcError) -> dict[str, Any]:
        wire = error.to_wire()
        if error.code in (ParseError.code, InvalidRequest.code) and not self.bad("unexplained"):
            wire["data"].setdefault("reason", "not as it must be")
        if self.bad("own_messages"):
            wire["message"] = f"Oh no: {wire['message']}"
        if self.bad("no_retryable"):
            del wire["data"]["retryable"]
        return wire
