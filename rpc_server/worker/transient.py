"""Decide whether an exception is an infrastructure failure: a rate limit, an outage or a failing network.

The exceptions behind the one that was raised are read as well, nearest first: its cause or context, the members of a
group, and exceptions in its attributes and arguments. The first of them that is decisive decides; what lies behind an
exception that is decided is not read. Of several that are equally near, one infrastructure failure is enough: the
example is then tried again, which corrects a wrong guess, and a score would not be corrected.

Nothing is imported to find out, so that any library of the program's environment is understood.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Any, Iterable, Iterator, NamedTuple
from urllib.parse import urlsplit

DEFAULT_TRANSIENT = (
    "openai.RateLimitError",
    "openai.APIConnectionError",
    "openai.APITimeoutError",
    "openai.InternalServerError",
    "anthropic.RateLimitError",
    "anthropic.APIConnectionError",
    "anthropic.APITimeoutError",
    "anthropic.InternalServerError",
    "anthropic.OverloadedError",
    "litellm.RateLimitError",
    "litellm.Timeout",
    "litellm.ServiceUnavailableError",
    "litellm.APIConnectionError",
    "litellm.InternalServerError",
    "dspy.LMRateLimitError",
    "dspy.LMTimeoutError",
    "dspy.LMServerError",
    "dspy.LMTransportError",
    "dspy.LMLockTimeoutError",
    "httpx.TransportError",
    "httpx2.TransportError",
    "aiohttp.ClientConnectionError",
)
"""Exception types that are infrastructure failures without an HTTP status or an error of the network behind them."""

_MAX_EXCEPTIONS = 64
_MAX_MESSAGE = 200
_STATUS_NAMES = ("status_code", "status", "statusCode", "http_status")
_LAST_ERROR_NAMES = ("lastError", "last_error")
_NETWORK_TYPES = ("socket.gaierror", "socket.herror", "ssl.SSLError", "http.client.IncompleteRead")
_TIMEOUT_TYPES = ("socket.timeout", "asyncio.TimeoutError", "concurrent.futures.TimeoutError")  # before Python 3.11
_NETWORK_ERRNOS = {
    getattr(errno, name)
    for name in ("ETIMEDOUT", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH")
    if hasattr(errno, name)
}
_AWS_THROTTLES = {  # answered with status 400 by some services; from the retry rules of the AWS SDKs
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "ProvisionedThroughputExceededException",
    "BandwidthLimitExceeded",
    "SlowDown",
}
_LIMITS = {"asyncio", "concurrent", "contextlib", "threading", "anyio", "trio", "async_timeout"}
"""Packages that raise a `TimeoutError` for their caller, which has set the limit."""
_BUGS = (LookupError, TypeError, AttributeError, NameError, ArithmeticError, AssertionError, ImportError, SyntaxError)
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_WORKER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_UNREADABLE = object()


class Classification(NamedTuple):
    """Whether an exception is an infrastructure failure, and the evidence: an HTTP status or a network error."""

    transient: bool
    evidence: str | None


def classify(error: BaseException, names: Iterable[str]) -> Classification:
    """Classify what user code raised.

    `names` are types of exception that are infrastructure failures, dotted, as the user imports them: `pkg.Name` also
    means a `Name` defined deeper inside `pkg`. A boolean attribute `retryable` comes before everything else.
    """
    names = tuple(names)
    package = _package_of_the_program(error)
    queue, seen, rejected = [error], {id(error)}, None
    for node in queue:  # it grows meanwhile
        retryable = _read(node, "retryable")
        if retryable is True:
            return Classification(True, None)
        if retryable is False:
            continue
        status = _http_status(node)
        if status is not None:
            evidence = _status_evidence(node, status)
            if _is_transient_status(node, status):
                return Classification(True, evidence)
            rejected = rejected or evidence
            continue
        if _is_network_error(node, package) or any(_is_named(type(node), name) for name in names):
            return Classification(True, None if node is error else _network_evidence(node))
        for behind in _behind(node, package):
            if id(behind) not in seen and len(queue) < _MAX_EXCEPTIONS:
                seen.add(id(behind))
                queue.append(behind)
    return Classification(False, rejected)


def _behind(error: BaseException, package: str | None) -> Iterator[BaseException]:
    """Yield the exceptions that led to this one.

    A context counts unless `from None` hides it, which only the program's own code can mean. It does not count for an
    error of the interpreter's own, such as a `KeyError`: that is a bug inside an `except` block.
    """
    cause, context = _cause(error), _context(error)
    if cause is not None:
        yield cause
    elif context is not None:
        bug = type(error).__module__ == "builtins" and _is(error, _BUGS)
        if not bug and (not _is_hidden(error) or _is_raised_by_a_library(error, package)):
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


def _is_transient_status(error: BaseException, status: int) -> bool:
    return status in (408, 425, 429) or status >= 500 or _aws_code(error) in _AWS_THROTTLES


def _aws_code(error: BaseException) -> str | None:
    code = _item(_item(_read(error, "response"), "Error"), "Code")
    return code if type(code) is str else None


def _is_network_error(error: BaseException, package: str | None) -> bool:
    kind = type(error)
    if issubclass(kind, ConnectionError) or any(_is_named(kind, name) for name in _NETWORK_TYPES):
        return True
    if issubclass(kind, OSError) and _builtin(OSError, "errno", error) in _NETWORK_ERRNOS:
        return True
    timeout = issubclass(kind, TimeoutError) or any(_is_named(kind, name) for name in _TIMEOUT_TYPES)
    return timeout and _is_raised_by_a_library(error, package)


def _is_raised_by_a_library(error: BaseException, package: str | None) -> bool:
    """Return False if the program's own code raised it, or a limit that the program set around a call."""
    for name, path in reversed(list(_frames(error))):
        top = name.partition(".")[0]
        if top in _LIMITS or path.startswith("<"):
            continue
        if top == package:
            return False
        installed = os.sep + "site-packages" + os.sep in path or os.sep + "dist-packages" + os.sep in path
        return installed or path.startswith(_STANDARD_LIBRARY)
    return False


def _package_of_the_program(error: BaseException) -> str | None:
    """Return the package that the worker called; it may be an installed one."""
    called = (name.partition(".")[0] for name, path in _frames(error) if not path.startswith(_WORKER))
    return next((package for package in called if package not in _LIMITS), None)


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the module and the file of each frame, outermost first."""
    trace: TracebackType | None = _builtin(BaseException, "__traceback__", error)
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__")
        yield name if type(name) is str else "", trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


def _status_evidence(error: BaseException, status: int) -> str:
    code, executor = _aws_code(error), _host(error)
    status_text = "HTTP %d %s" % (status, code) if code not in (None, str(status)) else "HTTP %d" % status
    return "%s%s, %s" % (status_text, " from %s" % executor if executor else "", _type_name(error))


def _network_evidence(error: BaseException) -> str:
    try:
        message = "".join(str(error))[:_MAX_MESSAGE]
    except BaseException:  # noqa: BLE001  # `__str__` is user code
        message = ""
    return "%s: %s" % (_type_name(error), message) if message else _type_name(error)


def _type_name(error: BaseException) -> str:
    kind = type(error)
    package = str(kind.__module__).partition(".")[0]
    return kind.__name__ if package == "builtins" else "%s.%s" % (package, kind.__name__)


def _host(error: BaseException) -> str | None:
    """Return host and port of the exception or one behind it; the rest of a URL may hold a key."""
    for _ in range(_MAX_EXCEPTIONS):
        if not str(type(error).__module__).startswith("litellm."):  # whose URLs are made up
            for holder in (error, *(_read(error, name) for name in ("response", "request", "request_info"))):
                executor = _host_of_url(_read(holder, "url"))
                if executor is not None:
                    return executor
        cause, context = _cause(error), _context(error)
        behind = context if cause is None else cause
        if behind is None:
            return None
        error = behind
    return None


def _host_of_url(url: Any) -> str | None:
    try:
        parts = urlsplit(str(url))
        return parts.hostname if parts.port is None else "%s:%d" % (parts.hostname, parts.port)
    except BaseException:  # noqa: BLE001  # `__str__` is user code
        return None


def _cause(error: BaseException) -> BaseException | None:
    cause: BaseException | None = _builtin(BaseException, "__cause__", error)
    return cause


def _context(error: BaseException) -> BaseException | None:
    context: BaseException | None = _builtin(BaseException, "__context__", error)
    return context


def _is_hidden(error: BaseException) -> bool:
    return _builtin(BaseException, "__suppress_context__", error) is True


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


def _is_named(kind: type, name: str) -> bool:
    package, _, short = name.rpartition(".")
    package = package or "builtins"
    return any(
        base.__qualname__ == short and (base.__module__ == package or str(base.__module__).startswith(package + "."))
        for base in kind.__mro__
    )
