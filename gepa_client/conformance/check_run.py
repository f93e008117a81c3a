"""Carry out the steps of one check; compare every answer with the contract and the check's expectations."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from gepa_client.conformance.case_language import as_bytes, lookup, mismatches, render, shown
from gepa_client.conformance.cases import CaseStep, ErrorExpectation, Expectation, HttpOverrides
from gepa_client.conformance.raw_transport import NoAnswer, RawAnswer, RawTransport, chunked, endless, withheld
from protocol import METHODS, JsonValue, Pending
from protocol.base import ErrorResponse, SuccessResponse

STEP_TIMEOUT_S = 45.0
HTTP_OK = 200
SILENT = frozenset({200, 202, 204})
INVALID = frozenset({-32700, -32600})
"""Errors of a body that is no valid request: with HTTP 400 or 200, and a null id although the request may have one."""


class NotJson(ValueError):
    """The body is not JSON: not UTF-8, cut short, or with NaN in it."""


class CheckFailed(Exception):
    """The endpoint did something else than the check expects."""


class FreshNames(dict[str, str]):
    """Names that were never used before, the same one for the same key within a check."""

    def __missing__(self, key: str) -> str:
        self[key] = f"conformance-{uuid.uuid4().hex}-{key}"
        return self[key]


class CheckRun:
    """One check being run: the values saved so far, and the calls made under a `call_id`."""

    def __init__(self, transport: RawTransport, discovery: JsonValue) -> None:
        self._transport = transport
        self._methods: dict[str, str] = {}
        self._ids = 0
        token = transport.token or ""
        self._scope: dict[str, Any] = {
            "discover": discovery,
            "seed": discovery["program"]["seed_candidate"],
            "token": token,
            "truncated_token": token[:-1],
            "fresh": FreshNames(),
        }

    async def step(self, step: CaseStep) -> None:
        """Carry out one step, `times` times at once.

        Raises:
            CheckFailed: an answer is not what the contract or the check expects.
            UnknownName: the case refers to a value that the answers so far did not give.
        """
        await asyncio.sleep(step.after_s)
        if step.times == 1:
            await self._once(step, self._scope)
        else:
            await _together([self._once(step, {**self._scope, "turn": turn}) for turn in range(step.times)])

    async def _once(self, step: CaseStep, scope: dict[str, Any]) -> None:
        if step.parallel is not None:
            await _together([self.step(inner) for inner in step.parallel])
        elif step.kind == "compare":
            _insist(mismatches(render(step.compare, scope), render(step.with_, scope)))
        else:
            await self._exchange(step, scope)

    async def _exchange(self, step: CaseStep, scope: dict[str, Any]) -> None:
        request, body = self._body(step, scope)
        self._remember_call(request)
        timeout_s = step.expect.elapsed.at_most if step.expect and step.expect.elapsed.at_most else STEP_TIMEOUT_S
        try:
            answer = await self._post(step, body, scope, timeout_s)
        except NoAnswer as lost:
            if step.disconnect_after_s is not None or (step.expect is not None and step.expect.or_lost):
                return
            raise CheckFailed(str(lost)) from lost
        if step.disconnect_after_s is not None:
            raise CheckFailed(
                f"answered after {answer.elapsed_s:.2f} s what should have taken longer: {_excerpt(answer)}"
            )
        message = self._checked(step, answer, request, scope)
        for name, path in step.save.items():
            self._scope[name] = answer.elapsed_s if path == "elapsed" else lookup(message, path)

    def _body(self, step: CaseStep, scope: dict[str, Any]) -> tuple[Any, bytes]:
        """Return the request as JSON (None if it is not meant to be JSON), and as bytes."""
        if step.kind == "raw":
            return None, as_bytes(render(step.raw, scope))
        if step.kind == "send":
            request = render(step.send, scope)
        else:
            self._ids += 1
            request = {"jsonrpc": "2.0", "id": self._ids, "method": step.call}
            if step.params is not None:
                request["params"] = render(step.params, scope)
        # A lone surrogate of a server's text has no UTF-8; it is replaced by its JSON escape.
        return request, json.dumps(request, ensure_ascii=False).encode("utf-8", "backslashreplace")

    def _remember_call(self, request: Any) -> None:
        if isinstance(request, dict) and isinstance(request.get("method"), str):
            call_id = lookup(request, "params._meta.call_id")
            if isinstance(call_id, str):
                self._methods.setdefault(call_id, request["method"])

    async def _post(self, step: CaseStep, body: bytes, scope: dict[str, Any], timeout_s: float) -> RawAnswer:
        http = step.http
        headers: dict[str, Any] = {name: render(value, scope) for name, value in http.headers.items()}
        content: bytes | AsyncIterator[bytes] = body
        if http.upload is not None:
            content, more = self._upload(http, body)
            headers |= more
        return await self._transport.send(
            content,
            timeout_s=timeout_s if step.disconnect_after_s is None else step.disconnect_after_s,
            verb=http.verb,
            path=http.path,
            query=render(http.query, scope),
            headers=headers,
        )

    def _upload(self, http: HttpOverrides, body: bytes) -> tuple[AsyncIterator[bytes], dict[str, str]]:
        limit = self._scope["discover"]["limits"]["max_request_bytes"]
        if http.upload == "withheld":
            return withheld(body), {"Content-Length": str(limit + 1)}
        if http.upload == "endless":
            return endless(body, 2 * limit), {}
        return chunked(body), {}

    def _checked(self, step: CaseStep, answer: RawAnswer, request: Any, scope: dict[str, Any]) -> Any:
        """Return the answer as JSON (None without a body) after every check of it."""
        expect = step.expect if step.expect is not None else Expectation(result={})
        given = expect.model_fields_set
        speaks_rpc = (step.http.path is None and step.http.verb == "POST" and not expect.status) or bool(
            given & {"result", "error", "id"}
        )
        _check_http(expect, answer, answers_rpc=speaks_rpc)
        if expect.empty:
            if answer.body:
                raise CheckFailed(f"expected no body, found {_excerpt(answer)}")
            return None
        if not speaks_rpc and "body" not in given:
            return None
        try:
            message = read(answer.body)
        except NotJson as error:
            raise CheckFailed(f"{error}: {_excerpt(answer)}") from error
        if speaks_rpc:
            _insist(problems(message, request, self._methods, refused=answer.status != HTTP_OK))
        if "id" in given:
            _insist(mismatches(lookup(message, "id"), render(expect.id, scope), "id"))
        if expect.error is not None:
            _check_error(expect.error, message, scope)
        elif "result" in given:
            if isinstance(message, dict) and "error" in message:
                raise CheckFailed(f"expected a result, found error {shown(message['error'])}")
            _insist(mismatches(lookup(message, "result"), render(expect.result, scope)))
        if "body" in given:
            _insist(mismatches(message, render(expect.body, scope)))
        return message


def _check_http(expect: Expectation, answer: RawAnswer, *, answers_rpc: bool) -> None:
    allowed = set(expect.status or ())
    if not allowed and expect.empty:
        allowed = set(SILENT)
    if not allowed and answers_rpc:
        allowed = {200, 400} if expect.error is not None and expect.error.code in INVALID else {200}
    if allowed and answer.status not in allowed:
        wanted = " or ".join(map(str, sorted(allowed)))
        raise CheckFailed(f"expected HTTP {wanted}, found {answer.status}: {_excerpt(answer)}")
    _insist(mismatches(answer.headers, expect.headers))
    at_least, at_most = expect.elapsed.at_least, expect.elapsed.at_most
    if at_least is not None and answer.elapsed_s < at_least:
        raise CheckFailed(f"answered after {answer.elapsed_s:.2f} s, expected at least {at_least:g} s")
    if at_most is not None and answer.elapsed_s > at_most:
        raise CheckFailed(f"answered after {answer.elapsed_s:.2f} s, expected at most {at_most:g} s")


def _check_error(expected: ErrorExpectation, message: Any, scope: dict[str, Any]) -> None:
    error = lookup(message, "error")
    if not isinstance(error, dict):
        raise CheckFailed(f"expected error {expected.code}, found {shown(message)}")
    if error["code"] != expected.code:
        raise CheckFailed(f"expected error {expected.code}, found {shown(error)}")
    if expected.path is not None:
        paths = lookup(error, "data.errors[*].path")
        if not isinstance(paths, list) or expected.path not in paths:
            raise CheckFailed(f"expected `data.errors` to name {expected.path}, found {shown(error.get('data'))}")
    if "data" in expected.model_fields_set:
        _insist(mismatches(error.get("data"), render(expected.data, scope), "error.data"))


def _insist(lines: list[str]) -> None:
    if lines:
        raise CheckFailed("; ".join(lines[:3]))


def _excerpt(answer: RawAnswer) -> str:
    return shown(answer.body[:400].decode("utf-8", "replace")) if answer.body else "an empty body"


async def _together(work: list[Any]) -> None:
    """Run all at once; the first failure, in order, is the one that counts, after all have ended."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def read(body: bytes) -> Any:
    """Parse the body as strict JSON.

    Raises:
        NotJson: with the reason.
    """
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the answer is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def problems(message: Any, request: Any, methods: Mapping[str, str], *, refused: bool) -> list[str]:
    """Return where an answer breaks the contract's schema, one line each.

    `request`: what was sent, as JSON, or None if it was not JSON. `methods`: call id -> method, of the calls made so
    far, since `get_result` answers in the shape of another call. `refused`: HTTP refused the request, possibly before
    its id was read.
    """
    if isinstance(message, list):
        by_id = {_key(entry.get("id")): entry for entry in request or [] if isinstance(entry, dict)}
        return [
            f"[{at}] {line}"
            for at, entry in enumerate(message)
            for line in _one(
                entry, by_id.get(_key(entry.get("id"))) if isinstance(entry, dict) else None, methods, False
            )
        ]
    return _one(message, request if isinstance(request, dict) else None, methods, refused)


def _key(value: Any) -> str:
    return json.dumps(value)


def _one(message: Any, request: Mapping[str, Any] | None, methods: Mapping[str, str], refused: bool) -> list[str]:
    if not isinstance(message, dict):
        return ["the answer is not a JSON-RPC object"]
    if ("result" in message) == ("error" in message):
        return ["the answer must have either `result` or `error`"]
    if "error" in message:
        lines = _misfits(ErrorResponse, message)
        code = message["error"].get("code") if isinstance(message["error"], dict) else None
        return lines or _wrong_id(message, request, may_be_null=refused or code in INVALID)
    lines = _misfits(SuccessResponse, message) or _wrong_id(message, request, may_be_null=False)
    if lines or request is None:
        return lines
    return _misfits_of_result(message["result"], request, methods)


def _wrong_id(message: Mapping[str, Any], request: Mapping[str, Any] | None, *, may_be_null: bool) -> list[str]:
    answered = message["id"]
    if (answered is None and may_be_null) or request is None or "id" not in request:
        return []
    asked = request["id"]
    if type(asked) is type(answered) and asked == answered:
        return []
    return [f"the answer has id {answered!r}, the request had {asked!r}"]


def _misfits_of_result(result: Any, request: Mapping[str, Any], methods: Mapping[str, str]) -> list[str]:
    name = request.get("method")
    params = request.get("params")
    if name == "get_result" and isinstance(params, dict):
        name = methods.get(str(params.get("call_id")), name)
    if isinstance(result, dict) and "pending" in result:
        return _misfits(Pending, result)
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None or method.result is None:
        return []
    return _misfits(method.result, result)


def _misfits(model: type[BaseModel], value: Any) -> list[str]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return [
            f"not a {model.__name__} at `{'.'.join(str(part) for part in misfit['loc'])}`: {misfit['msg']}"
            for misfit in error.errors(include_url=False, include_input=False)[:3]
        ]
    return []
