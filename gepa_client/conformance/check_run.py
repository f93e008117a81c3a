"""Carry out the steps of one check; compare every answer with the contract and the check's expectations."""

import asyncio
import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import IO, Any, Literal, NoReturn

from pydantic import BaseModel, ValidationError

from gepa_client.conformance.cases import (
    ABSENT,
    CaseStep,
    Check,
    Expectation,
    Mismatch,
    UnknownName,
    as_bytes,
    as_json,
    lookup,
    mismatches,
    render,
    shown,
)
from gepa_client.conformance.raw_transport import NoAnswer, NotConnected, RawAnswer, RawRequest, RawTransport
from gepa_client.transport.event_loop import in_daemon_thread
from protocol import METHODS, JsonValue, Pending
from protocol.base import ErrorResponse, SuccessResponse

STEP_TIMEOUT_S = 45.0
HTTP_OK = 200
SILENT = frozenset({200, 202, 204})
INVALID = frozenset({-32700, -32600})
"""Errors of a body that is no valid request: with HTTP 400 or 200, and a null id although the request may have one."""

FIRST_ANSWER_S = 30.0
DISCOVER = b'{"jsonrpc":"2.0","id":1,"method":"discover","params":{}}\n'
LONGEST_LINE = 64 * 2**20


class NotJson(ValueError):
    """The body is not JSON: not UTF-8, cut short, or with NaN in it."""


class CheckFailed(Exception):
    """The endpoint did something else than the check expects, in answer to `request` if it is about one.

    `lost`: there was no answer, for this reason.
    """

    def __init__(self, *found: Mismatch, lost: NoAnswer | None = None, request: RawRequest | None = None) -> None:
        super().__init__("; ".join(map(str, found)))
        self.mismatches = found
        self.lost = lost
        self.request = request

    @property
    def expected(self) -> str:
        """What was expected, each with its path."""
        return "; ".join(f"{one.path} {one.expected}".strip() for one in self.mismatches)

    @property
    def found(self) -> str:
        """What was found in its place, each with its path."""
        return "; ".join(f"{one.path} {one.found}".strip() for one in self.mismatches)


class FreshNames(dict[str, str]):
    """Names that were never used before, the same one for the same key within a check."""

    def __missing__(self, key: str) -> str:
        self[key] = f"conformance-{uuid.uuid4().hex}-{key}"
        return self[key]


class CheckRun:
    """One check being run: the values saved so far, and the calls made under a `call_id`.

    `discovery`: the answer of `discover`, empty if it is not known. `command`: of the program over stdio, if one is
    served. `last_request`: None before the first. `answered`: whether any was answered.
    """

    def __init__(self, transport: RawTransport, discovery: JsonValue, command: Sequence[str] = ()) -> None:
        self.last_request: RawRequest | None = None
        self.answered = False
        self.at = 0
        self._transport = transport
        self._command = command
        self._methods: dict[str, str] = {}
        self._ids = 0
        token = transport.token or ""
        altered = token[:-1] + ("y" if token.endswith("x") else "x")
        self._scope: dict[str, Any] = {
            "discover": discovery,
            "seed": lookup(discovery, "program.seed_candidate"),
            "token": token,
            "truncated_token": token[:-1],
            "altered_token": altered,
            "recased_token": token.swapcase() if token.swapcase() != token else altered,
            "fresh": FreshNames(),
        }

    async def check(self, check: Check) -> None:
        """Carry out the steps; `at` is the number of the present one, from 1.

        Raises:
            CheckFailed: an answer is not what the contract or the check expects.
        """
        try:
            async with asyncio.timeout(check.timeout_s):
                for self.at, step in enumerate(check.steps, 1):
                    await self._step(step)
        except UnknownName as error:
            raise CheckFailed(Mismatch("", "what this step needs in an earlier answer", str(error))) from error
        except RecursionError as error:
            raise CheckFailed(Mismatch("", "an answer that can be read", "one that nests too deep")) from error
        except TimeoutError as error:
            late = NoAnswer(f"not all answers within {check.timeout_s:g} s")
            raise CheckFailed(Mismatch("", f"all answers within {check.timeout_s:g} s", "fewer"), lost=late) from error

    async def _step(self, step: CaseStep) -> None:
        """Carry out one step, `times` times at once."""
        await asyncio.sleep(render(step.after_s, self._scope))
        if step.times == 1:
            await self._once(step, self._scope)
        else:
            await _together([self._once(step, {**self._scope, "turn": turn}) for turn in range(step.times)])

    async def _once(self, step: CaseStep, scope: dict[str, Any]) -> None:
        if step.parallel is not None:
            await _together([self._step(inner) for inner in step.parallel])
        elif step.kind == "compare":
            _insist(mismatches(render(step.compare, scope), render(step.with_, scope)))
        elif step.end is not None:
            within_s = (step.expect and step.expect.within_s) or STEP_TIMEOUT_S
            if instead := await exits(self._command, step.end, within_s=within_s):
                asked = "the end of its input" if step.end == "input" else "SIGTERM"
                raise CheckFailed(Mismatch("", f"its exit within {within_s:g} s of {asked}", instead))
        else:
            await self._exchange(step, scope)

    async def _exchange(self, step: CaseStep, scope: dict[str, Any]) -> None:
        message, request = self._request(step, scope)
        self._remember_call(message)
        self.last_request = request
        try:
            answer = await self._answer(step, request)
            if answer is None:
                return
            checked = self._checked(step, answer, message, scope)
        except CheckFailed as failure:
            failure.request = request
            raise
        for name, path in step.save.items():
            self._scope[name] = answer.elapsed_s if path == "elapsed" else lookup(checked, path)

    async def _answer(self, step: CaseStep, request: RawRequest) -> RawAnswer | None:
        """Return the answer; None if there is none and need be none."""
        expect = step.expect if step.expect is not None else Expectation()
        timeout_s = step.disconnect_after_s or expect.within_s or STEP_TIMEOUT_S
        try:
            answer = await self._transport.send(request, timeout_s=timeout_s)
        except NoAnswer as lost:
            if (step.disconnect_after_s is not None or expect.or_lost) and not isinstance(lost, NotConnected):
                return None
            raise CheckFailed(Mismatch("", f"an answer within {timeout_s:g} s", str(lost)), lost=lost) from lost
        self.answered = True
        if step.disconnect_after_s is not None:
            found = f"one after {answer.elapsed_s:.2f} s: {_excerpt(answer)}"
            raise CheckFailed(Mismatch("", f"no answer within {step.disconnect_after_s:g} s", found))
        return answer

    def _request(self, step: CaseStep, scope: dict[str, Any]) -> tuple[Any, RawRequest]:
        """Return the message as JSON (None if it is not meant to be JSON), and the request that carries it."""
        message = None
        if step.kind == "send":
            message = render(step.send, scope)
        elif step.kind == "call":
            self._ids += 1
            message = {"jsonrpc": "2.0", "id": self._ids, "method": step.call}
            if step.params is not None:
                message["params"] = render(step.params, scope)
        headers = {name: render(value, scope) for name, value in step.http.headers.items()}
        http = step.http.model_copy(update={"query": render(step.http.query, scope), "headers": headers})
        limit = render("${discover.limits.max_request_bytes}", scope) if http.upload else 0
        return message, RawRequest(
            body=as_bytes(render(step.raw, scope)) if step.kind == "raw" else as_json(message),
            http=http,
            upload_bytes=limit + 1 if http.upload == "withheld" else 2 * limit,
            close_after_s=step.disconnect_after_s,
        )

    def _remember_call(self, request: Any) -> None:
        if isinstance(request, dict) and isinstance(request.get("method"), str):
            call_id = lookup(request, "params._meta.call_id")
            if isinstance(call_id, str):
                self._methods.setdefault(call_id, request["method"])

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
                raise CheckFailed(Mismatch("", "no body", _excerpt(answer)))
            return None
        if not speaks_rpc and "body" not in given:
            return None
        try:
            message = read(answer.body)
        except NotJson as error:
            raise CheckFailed(Mismatch("", "JSON", f"{_excerpt(answer)} ({error})")) from error
        if speaks_rpc:
            _insist(problems(message, request, self._methods, refused=answer.status != HTTP_OK))
        for name in sorted(given & {"id", "result", "error"}):
            found, matcher = lookup(message, name), render(getattr(expect, name), scope)
            if found is ABSENT:
                raise CheckFailed(Mismatch("", f"{name} {shown(matcher)}", shown(message)))
            _insist(mismatches(found, matcher, name))
        if "body" in given:
            _insist(mismatches(message, render(expect.body, scope)))
        return message


def _check_http(expect: Expectation, answer: RawAnswer, *, answers_rpc: bool) -> None:
    allowed = set(expect.status or ())
    if not allowed and expect.empty:
        allowed = set(SILENT)
    if not allowed and answers_rpc:
        allowed = {200, 400} if lookup(expect.error, "code") in INVALID else {200}
    if allowed and answer.status not in allowed:
        wanted = " or ".join(map(str, sorted(allowed)))
        raise CheckFailed(Mismatch("", f"HTTP {wanted}", f"HTTP {answer.status}: {_excerpt(answer)}"))
    _insist(mismatches(answer.headers, expect.headers, "HTTP header"))


def _insist(found: list[Mismatch]) -> None:
    if found:
        raise CheckFailed(*found[:3])


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


def problems(message: Any, request: Any, methods: Mapping[str, str], *, refused: bool) -> list[Mismatch]:
    """Return where an answer breaks the contract's schema.

    `request`: what was sent, as JSON, or None if it was not JSON. `methods`: call id -> method, of the calls made so
    far, since `get_result` answers in the shape of another call. `refused`: HTTP refused the request, possibly before
    its id was read.
    """
    if isinstance(message, list):
        by_id = {_key(entry.get("id")): entry for entry in request or [] if isinstance(entry, dict)}
        return [
            found._replace(path=f"[{at}].{found.path}")
            for at, entry in enumerate(message)
            for found in _one(
                entry, by_id.get(_key(entry.get("id"))) if isinstance(entry, dict) else None, methods, False
            )
        ]
    return _one(message, request if isinstance(request, dict) else None, methods, refused)


def _key(value: Any) -> str:
    return json.dumps(value)


def _one(message: Any, request: Mapping[str, Any] | None, methods: Mapping[str, str], refused: bool) -> list[Mismatch]:
    if not isinstance(message, dict) or ("result" in message) == ("error" in message):
        return [Mismatch("", "a JSON-RPC response, with either `result` or `error`", shown(message))]
    if "error" in message:
        found = _misfits(ErrorResponse, message)
        code = message["error"].get("code") if isinstance(message["error"], dict) else None
        return found or _wrong_id(message, request, may_be_null=refused or code in INVALID)
    found = _misfits(SuccessResponse, message) or _wrong_id(message, request, may_be_null=False)
    if found or request is None:
        return found
    return _misfits_of_result(message["result"], request, methods)


def _wrong_id(message: Mapping[str, Any], request: Mapping[str, Any] | None, *, may_be_null: bool) -> list[Mismatch]:
    answered = message["id"]
    if (answered is None and may_be_null) or request is None or "id" not in request:
        return []
    asked = request["id"]
    if type(asked) is type(answered) and asked == answered:
        return []
    return [Mismatch("id", f"that of the request, {shown(asked)}", shown(answered))]


def _misfits_of_result(result: Any, request: Mapping[str, Any], methods: Mapping[str, str]) -> list[Mismatch]:
    name = request.get("method")
    params = request.get("params")
    if name == "get_result" and isinstance(params, dict):
        name = methods.get(str(params.get("call_id")), name)
    if isinstance(result, dict) and "pending" in result:
        return _misfits(Pending, result, "result")
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None or method.result is None:
        return []
    return _misfits(method.result, result, "result")


def _misfits(model: type[BaseModel], value: Any, path: str = "") -> list[Mismatch]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return [
            Mismatch(
                path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in misfit["loc"]),
                f"what the schema has ({model.__name__}: {misfit['msg']})",
                "nothing" if misfit["type"] == "missing" else shown(misfit["input"]),
            )
            for misfit in error.errors(include_url=False)[:3]
        ]
    return []


async def exits(command: Sequence[str], how: Literal["input", "sigterm"], *, within_s: float) -> str:
    """Start `command`, wait for its answer of `discover`, close its input or send it SIGTERM; then kill what is left.

    Returns:
        What it does instead of exiting within `within_s` seconds; empty if it exits.
    """
    process = subprocess.Popen(  # noqa: ASYNC220, S603  # asyncio's own waits until its output is closed too
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GEPA_STDIO": "1"},
        start_new_session=True,
    )
    try:
        return await in_daemon_thread(functools.partial(_instead_of_exit, process, how, within_s))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()


def _instead_of_exit(process: subprocess.Popen[bytes], how: Literal["input", "sigterm"], within_s: float) -> str:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process has no pipes")
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
    threading.Thread(target=_read_on, args=(process.stdout, answers), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(DISCOVER)
        process.stdin.flush()
    try:
        if not answers.get(timeout=FIRST_ANSWER_S):
            return "it ended before it answered `discover`"
        if how == "input":
            process.stdin.close()
        else:
            process.terminate()
        process.wait(within_s)
    except queue.Empty:
        return f"no answer of `discover` within {FIRST_ANSWER_S:g} s"
    except subprocess.TimeoutExpired:
        return f"it still runs after {within_s:g} s"
    return ""


def _read_on(output: IO[bytes], answers: "queue.SimpleQueue[bool]") -> None:
    """Read to the end, so that the process is not held up; put True for an answer, and False for the end."""
    with output:
        for line in iter(functools.partial(output.readline, LONGEST_LINE), b""):
            if _is_answer(line):
                answers.put(True)
    answers.put(False)


def _is_answer(line: bytes) -> bool:
    """Whether the line is the answer, and not log text before it."""
    try:
        message = json.loads(line)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get("id") == 1
