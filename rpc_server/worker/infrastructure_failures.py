"""Decide whether an exception is an infrastructure failure: a rate limit, an outage or a failing network.

It is one if it leads to a call of the example that failed transiently, and is open. The exceptions behind the one that
was raised are read as well, nearest first: its cause or context, the members of a group, and exceptions in its
attributes and arguments. The first of them that is decisive decides; what lies behind an exception that is decided is
not read. Of several that are equally near, one infrastructure failure is enough: the example is then tried again, which
corrects a wrong guess, and a score would not be corrected.

Exceptions of clients whose calls are not seen, such as gRPC's, are judged by what they state: a status, a code, a class
of the standard library. Nothing is imported to find out, so that any library of the program is understood.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType, TracebackType
from typing import Any, Iterator, NamedTuple
from urllib.parse import urlsplit

from .call_failures import has_network_errno, is_network_error, is_timeout, network_text_in
from .errors import is_installed, is_of_the_standard_library, is_of_the_worker
from .model_apis import is_transient_code, is_transient_status
from .network_calls import Call, ExampleCalls

_MAX_EXCEPTIONS = 64
_MAX_MESSAGE = 200
_STATUS_NAMES = ("status_code", "status", "statusCode", "http_status")
_LAST_ERROR_NAMES = ("lastError", "last_error")
_GRPC_CODES = {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE"}
_SQL_STATES = re.compile(r"08|53|57P")
"""Classes of SQLSTATE: no connection, too few resources; and PostgreSQL's codes of a server that is shutting down."""
_CLOSE_CODES = (1006, 1011, 1012, 1013, 1014)
"""With which a WebSocket closes if the connection broke, or its server fails, restarts or is busy."""
_HELD_BACK = ("cooldown_time", "retry_after")
"""Attributes, in seconds, of exceptions by which a client holds a call back itself because of an earlier failure."""
_NETWORK_NAMES = {
    *("ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError"),
    "TimeoutError",
}
"""Of the standard library; libraries give them to classes of their own."""
_LIMITS = {
    *("asyncio", "concurrent", "contextlib", "threading", "multiprocessing", "subprocess", "anyio", "trio"),
    "async_timeout",
}
"""Packages that raise a `TimeoutError` for their caller, which has set the limit, or whose connections may be local."""
_BUGS = (LookupError, TypeError, AttributeError, NameError, ArithmeticError, AssertionError, ImportError, SyntaxError)
_UNREADABLE = object()


class Classification(NamedTuple):
    """Whether an exception is an infrastructure failure, and the evidence: an HTTP status or a failed call."""

    transient: bool
    evidence: str | None


def classify(error: BaseException, calls: ExampleCalls | None = None) -> Classification:
    """Classify what user code raised; `calls`: those of the example.

    A boolean attribute `retryable` comes before everything else.
    """
    package = _package_of_the_program(error)
    failed = calls.failed() if calls is not None else []
    queue, seen, rejected = [error], {id(error)}, None
    is_refused = is_handled = names_the_network = False
    for node in queue:  # it grows meanwhile
        retryable = _read(node, "retryable")
        if retryable is True:
            return Classification(True, None)
        if retryable is False:
            is_refused = True
            continue
        status = _http_status(node)
        led_to = _calls_of(node, status, failed)
        opened = next((call for call in led_to if calls is not None and calls.is_open(call)), None)
        if opened is not None:
            return Classification(True, _status_evidence(node, status) if status is not None else evidence_of(opened))
        if led_to:
            is_handled = True  # the program continued after it
            continue
        if status is None and calls is not None:
            opened = next((call for call in failed if _is_caller(node, call) and calls.is_open_and_last(call)), None)
            if opened is not None:
                return Classification(True, evidence_of(opened))
        if status is not None:
            evidence = _status_evidence(node, status)
            if is_transient_status(status) or is_transient_code(_aws_code(node) or ""):
                return Classification(True, evidence)
            rejected = rejected or evidence
            continue
        is_any_open = calls is not None and any(map(calls.is_open, failed))
        stated = _states_a_transient_failure(node, package, is_any_open=is_any_open)
        if stated:
            return Classification(True, None if node is error else _network_evidence(node))
        if stated is None:
            names_the_network = names_the_network or _is_of_the_network_by_its_words(node, package)
            for behind in _behind(node, package):
                if id(behind) not in seen and len(queue) < _MAX_EXCEPTIONS:
                    seen.add(id(behind))
                    queue.append(behind)
    last = calls.open_model_call() if calls is not None and not is_refused else None
    if last is not None:
        return Classification(True, evidence_of(last))
    is_transient = names_the_network and not is_handled and rejected is None and not is_refused
    return Classification(is_transient, rejected)


def evidence_of(call: Call) -> str:
    """Return how a call failed, and its host."""
    reason = "HTTP %s" % call.reason if call.reason == str(call.status) else call.reason
    return "%s from %s" % (reason, call.host)


def _calls_of(error: BaseException, status: int | None, failed: list[Call]) -> list[Call]:
    """Return the failed calls that an exception is of: it was raised by them, or has their status or host."""
    own = [call for call in failed if call.problem is error]
    if own or not failed:
        return own
    if status is not None:
        return [call for call in failed if call.status == status]
    host = _own_host(error)
    return [call for call in failed if call.host == host]


def _is_caller(error: BaseException, call: Call) -> bool:
    """Return whether the library that made a call, in another task or without handing on what it met, raised this."""
    last = next(reversed(list(_frames(error))), None)
    return last is not None and call.caller is not None and last[0].partition(".")[0] == call.caller


def _states_a_transient_failure(error: BaseException, package: str | None, *, is_any_open: bool) -> bool | None:
    """Return what the exception of a client that is not watched states of itself; None if it states nothing.

    `is_any_open`: a call of the example is open, so that a broken connection may be its.
    """
    kind = type(error)
    if _is_of_a_library(kind):
        stated = _is_stated_by_a_library(error)
        if stated is not None:
            return stated
    if is_transient_code(_aws_code(error) or "") or is_network_error(kind):
        return True
    number = _builtin(OSError, "errno", error) if issubclass(kind, OSError) else None
    if issubclass(kind, ConnectionError) and number is not None:  # also of pipes and sockets within the machine
        return True if is_any_open or _is_raised_by_a_library(error, package) else None
    if issubclass(kind, ConnectionError) or has_network_errno(number):
        return True
    is_late = is_timeout(kind) or _read(error, "timeout") is True
    return True if is_late and _is_raised_by_a_library(error, package) else None


def _is_stated_by_a_library(error: BaseException) -> bool | None:
    code = _read(error, "code")
    code = _read(error, "status") if code is _UNREADABLE else code
    if _name_of(code) in _GRPC_CODES or (_is(code, str) and is_transient_code(code)):
        return True
    sql_state = _read(error, "sqlstate")
    sql_state = _read(error, "pgcode") if not _is(sql_state, str) else sql_state
    if _is(sql_state, str):
        return _SQL_STATES.match(sql_state) is not None
    received = _read(error, "rcvd")
    if received is not _UNREADABLE and _read(error, "sent") is not _UNREADABLE:
        return received is None or _number(received, "code") in _CLOSE_CODES
    return True if any(_is(_read(error, held), (int, float)) for held in _HELD_BACK) else None


def _is_of_the_network_by_its_words(error: BaseException, package: str | None) -> bool:
    """Return whether a library names an error of the network, by its class or in the operating system's words."""
    named = any(base.__name__ in _NETWORK_NAMES for base in type(error).__mro__) or network_text_in(_text_of(error))
    if type(error) is EOFError:  # the standard library has it for files too
        frames = list(_frames(error))
        named = bool(frames) and is_installed(frames[-1][1])
    return named and _is_raised_by_a_library(error, package)


def _is_of_a_library(kind: type) -> bool:
    """Return whether a class, or one that it is derived from, is of an installed package."""
    modules = [sys.modules.get(str(base.__module__)) for base in kind.__mro__]
    files = [vars(module).get("__file__") for module in modules if isinstance(module, ModuleType)]
    return any(isinstance(file, str) and is_installed(file) for file in files)


def _name_of(code: Any) -> str | None:
    """Return the name of a code of an enumeration, given as itself or as the method that returns it."""
    if callable(code):
        try:
            code = code()
        except BaseException:  # noqa: BLE001  # user code
            return None
    name = _read(code, "name")
    return name if type(name) is str else None


def _behind(error: BaseException, package: str | None) -> Iterator[BaseException]:
    """Yield the exceptions that led to this one.

    A context counts unless `from None` hides it, which only the program's own code can mean. It does not count for an
    error of the interpreter's own, such as a `KeyError`: that is a bug inside an `except` block.
    """
    cause, context = _cause_and_context(error)
    if cause is not None:
        yield cause
    elif context is not None:
        bug = type(error).__module__ == "builtins" and _is(error, _BUGS)
        is_hidden = _builtin(BaseException, "__suppress_context__", error) is True
        if not bug and (not is_hidden or _is_raised_by_a_library(error, package)):
            yield context
    attributes = _attributes(error)
    last = [attributes[name] for name in _LAST_ERROR_NAMES if _is(attributes.get(name), BaseException)]
    values = last or [_read(error, "exceptions"), *attributes.values(), *_builtin(BaseException, "args", error)]
    for value in values[:_MAX_EXCEPTIONS]:
        if _is(value, BaseException):
            yield value
        elif type(value) in (list, tuple):
            yield from (member for member in value[:_MAX_EXCEPTIONS] if _is(member, BaseException))


def _http_status(error: BaseException) -> int | None:
    """Return the status from 400 to 599 that the exception or its response has.

    A number in `code` counts only beside a response or headers: alone it may be an error code of the program's own.
    """
    response = _read(error, "response")
    found = [_number(error, name) for name in _STATUS_NAMES]
    if _is(response, dict):
        found.append(_as_number(_item(_item(response, "ResponseMetadata"), "HTTPStatusCode")))
    elif response is not None and response is not _UNREADABLE:
        found += [_number(response, name) for name in _STATUS_NAMES]
    parts = (response, _read(error, "headers"))
    if not any(found) and any(part is not _UNREADABLE and not _is(part, str) for part in parts):
        found.append(_number(error, "code"))
    return next((number for number in found if number is not None and 400 <= number <= 599), None)


def _aws_code(error: BaseException) -> str | None:
    code = _item(_item(_read(error, "response"), "Error"), "Code")
    return code if type(code) is str else None


def _is_raised_by_a_library(error: BaseException, package: str | None) -> bool:
    """Return False if the program's own code raised it, or a limit that the program set around a call."""
    for name, path in reversed(list(_frames(error))):
        top = name.partition(".")[0]
        if top in _LIMITS or path.startswith("<"):
            continue
        if top == package:
            return False
        return is_installed(path) or is_of_the_standard_library(path)
    return False


def _package_of_the_program(error: BaseException) -> str | None:
    """Return the package that the worker called; it may be an installed one."""
    called = (name.partition(".")[0] for name, path in _frames(error) if not is_of_the_worker(path))
    return next((package for package in called if package not in _LIMITS), None)


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the module and the file of each frame, outermost first."""
    trace: TracebackType | None = _builtin(BaseException, "__traceback__", error)
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__")
        yield name if type(name) is str else "", trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


def _status_evidence(error: BaseException, status: int) -> str:
    code, host = _aws_code(error), _host(error)
    status_text = "HTTP %d %s" % (status, code) if code not in (None, str(status)) else "HTTP %d" % status
    return "%s%s, %s" % (status_text, " from %s" % host if host else "", _type_name(error))


def _network_evidence(error: BaseException) -> str:
    message = _text_of(error)[:_MAX_MESSAGE]
    return "%s: %s" % (_type_name(error), message) if message else _type_name(error)


def _text_of(error: BaseException) -> str:
    try:
        return "".join(str(error))
    except BaseException:  # noqa: BLE001  # `__str__` is user code
        return ""


def _type_name(error: BaseException) -> str:
    kind = type(error)
    package = str(kind.__module__).partition(".")[0]
    return kind.__name__ if package == "builtins" else "%s.%s" % (package, kind.__name__)


def _host(error: BaseException) -> str | None:
    """Return host and port of the exception or one behind it; the rest of a URL may hold a key."""
    for _ in range(_MAX_EXCEPTIONS):
        if not str(type(error).__module__).startswith("litellm."):  # whose URLs are made up
            own = _own_host(error)
            if own is not None:
                return own
        cause, context = _cause_and_context(error)
        behind = context if cause is None else cause
        if behind is None:
            return None
        error = behind
    return None


def _own_host(error: BaseException) -> str | None:
    for holder in (error, *(_read(error, name) for name in ("response", "request", "request_info"))):
        found = _host_of_url(_read(holder, "url"))
        if found is not None:
            return found
    return None


def _host_of_url(url: Any) -> str | None:
    try:
        parts = urlsplit(str(url))
        return parts.hostname if parts.port is None else "%s:%d" % (parts.hostname, parts.port)
    except BaseException:  # noqa: BLE001  # `__str__` is user code
        return None


def _cause_and_context(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    return _builtin(BaseException, "__cause__", error), _builtin(BaseException, "__context__", error)


def _builtin(kind: type, name: str, error: BaseException) -> Any:
    """Return the attribute as `kind` itself reads it: a subclass may have a property of the same name."""
    return kind.__dict__[name].__get__(error)


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return the instance's own attributes without running a property."""
    try:
        return dict(object.__getattribute__(error, "__dict__"))
    except BaseException:  # noqa: BLE001  # `__dict__` can be user code
        return {}


def _read(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, _UNREADABLE)
    except BaseException:  # noqa: BLE001  # a property is user code
        return _UNREADABLE


def _item(holder: Any, key: str) -> Any:
    return dict.get(holder, key) if _is(holder, dict) else None


def _number(holder: Any, name: str) -> int | None:
    return _as_number(_read(holder, name))


def _as_number(value: Any) -> int | None:
    return int.__int__(value) if _is(value, int) and not _is(value, bool) else None


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Check the type without the value's `__class__`, which can be user code."""
    return issubclass(type(value), kind)
