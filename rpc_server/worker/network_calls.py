"""The calls over the network of an example: whose they are, how they ended, and which failure is still open.

A call failed in a way that passes if there was no connection, it was cut, the other side timed out, or it answered that
it cannot do it now. It is open until the same request succeeds, or a call that the same task began afterwards to that
host does, or another host answers the same prompt.
"""

from __future__ import annotations

import contextvars
import functools
import io
import itertools
import json
import sys
import threading
from typing import Any, Callable, Container, Iterable

from .call_failures import UNREAD, Body, body_of, is_transient_problem, reason_of, retry_after_s
from .errors import calling_package
from .model_apis import (
    Request,
    StatedError,
    add_call,
    endpoint_of,
    is_transient_code,
    is_transient_status,
    parsed,
    prompt_of,
    read_request,
    tokens_of,
    usage_in,
    usage_of,
)

_MAX_REASON = 256  # in the contract

_time = itertools.count()
_lock = threading.Lock()
_open: set[ExampleCalls] = set()
place: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("place", default=None)
"""The branch of an example that runs here; `INSIDE` while a watched call runs, whose parts are not calls themselves."""


OF_THREAD = "_evolverpc_place"
"""Attribute of a thread: the branch that it runs."""


class Branch:
    """A sequence of calls within an example: those of one task, or of one thread.

    `owner`: the id of that task or thread; None until it runs. `began`: when it was created, not when it first ran.
    `waited`: when it last waited for a result of a pool of threads.
    """

    __slots__ = ("began", "example", "owner", "parent", "waited")

    def __init__(self, example: ExampleCalls | None, owner: int | None, parent: Branch | None) -> None:
        self.example = example
        self.owner = owner
        self.parent = parent
        self.began = self.waited = next(_time)

    def is_within(self, other: Branch) -> bool:
        """Return whether it is the other branch, or one of those that began in that."""
        branch: Branch | None = self
        while branch is not None and branch is not other:
            branch = branch.parent
        return branch is not None


INSIDE = Branch(None, 0, None)


class Call:
    """One exchange with a host; what runs while it is open as a context manager is a part of it.

    `outcome`: `succeeded`, `failed` transiently, `cancelled` by the program, `other`, None while it runs. The request
    is parsed when it is needed, mostly after the program has returned.
    """

    ended: int | None = None
    outcome: str | None = None
    status: int | None = None
    reason: str | None = None
    retry_after_s: float | None = None
    problem: BaseException | None = None
    caller: str | None = None
    body: Body = UNREAD
    answer: tuple[str | None, dict[str, Any] | None] = (None, None)
    """The model that the complete answer names, and its usage; None of what it does not state."""
    _on_close: Callable[[], Any] | None = None

    def __init__(self, branch: Branch, method: str, url: str, sent: Any) -> None:
        """Add it to the example's calls. `sent`: bytes or text, or what is equal to no other request's."""
        self.branch = branch
        self._endpoint = endpoint_of(method, url)
        self.host = self._endpoint.host
        if isinstance(sent, (bytes, str)) and not self._endpoint.may_be_of_models:
            sent = hash(sent)  # it is only compared, and may be large
        self._request = (method, url, sent)
        example = branch.example  # the end of the example, in another thread, sets it to None
        hosts: Container[str] = () if example is None else example.model_hosts
        self._is_to_named_host = bool(hosts) and (self.host in hosts or self.host.rpartition(":")[0] in hosts)
        self.began = next(_time)
        if example is not None:
            example.calls.append(self)  # last: other threads read the list

    def __enter__(self) -> None:
        self._token = place.set(INSIDE)

    def __exit__(self, _: Any, problem: BaseException | None, __: Any) -> None:
        place.reset(self._token)
        if problem is not None:
            self.raised(problem)

    @functools.cached_property
    def asked(self) -> Request:
        """Whether the request asks a model, and which."""
        return read_request(self._endpoint, self._request[2])

    @functools.cached_property
    def key(self) -> Any:
        """What is equal for the same request."""
        method, url, sent = self._request
        return method, url, hash(sent)

    @functools.cached_property
    def prompt(self) -> Any:
        """What is equal for requests that ask the same, also of another model or host."""
        prompt = prompt_of(self._request[2]) if self.asked.is_of_model else None
        return self.key if prompt is None else hash(prompt)

    @property
    def is_of_model(self) -> bool:
        """Whether it asks a model, also because the user has named the host."""
        return self._is_to_named_host or self.asked.is_of_model

    def when_closed(self, forget: Callable[[], Any]) -> None:
        """Call `forget` when the example ends: a response may never be read to its end."""
        self._on_close = forget

    def close(self) -> None:
        """Drop what is needed only while the example is open."""
        if self._on_close is not None:
            self._on_close()
        self._on_close, self.body = None, UNREAD
        self.branch.example = None  # which refers to its calls

    def answered(self, status: int, headers: Any, *, is_decoded: bool = False) -> None:
        """Take the head of the response; `headers`: a mapping whose `get` does not ask for the case of a name.

        `is_decoded`: the client has undone the encoding of what it feeds.
        """
        self.status = status
        content_type = headers.get("content-type") or ""
        if status >= 400:
            is_slowed = status == 400 and is_transient_code(headers.get("x-amzn-errortype") or "")
            if is_slowed or is_transient_status(status):
                self._fail(str(status))
            else:
                self.outcome = "other"
        elif "grpc" in content_type and headers.get("grpc-status") in ("4", "8", "14"):
            self._fail("gRPC status %s" % headers.get("grpc-status"))
        else:
            self.outcome = "succeeded"
        if self.outcome == "failed":
            self.retry_after_s = retry_after_s(headers)
        if status < 400 and (self._endpoint.may_be_of_models or self._is_to_named_host):
            self.body = body_of(content_type, "" if is_decoded else headers.get("content-encoding") or "")

    def feed(self, data: bytes) -> None:
        """Look at the bytes that the program reads."""
        body = self.body
        try:
            body.feed(data)
        except Exception:  # noqa: BLE001  # a body that cannot be decoded is the client's to report
            self.body = UNREAD
            return
        if body.error is not None:
            self._take_error(body.error)

    def finished(self) -> None:
        """Record the end of the body."""
        if self.ended is None or self.outcome == "succeeded":
            self.ended = next(_time)
        body, self.body = self.body, UNREAD
        if body is UNREAD:  # it is not read, or was complete before
            return
        try:
            self.answer = _read_answer(body.end())
        except Exception:  # noqa: BLE001  # as above
            return
        if body.error is not None:
            self._take_error(body.error)
        elif body.is_cut and self.outcome == "succeeded" and self.is_of_model:
            self._fail("the stream ended before its last event")

    def raised(self, problem: BaseException) -> None:
        """Record what the client's transport raised, before the response or while its body is read."""
        self.problem = problem
        if self.outcome == "failed":
            return
        if is_transient_problem(problem):
            self._fail(reason_of(problem))
        else:
            self.outcome = "other" if isinstance(problem, Exception) else "cancelled"

    def _take_error(self, error: StatedError) -> None:
        if self.outcome == "failed" or not self.is_of_model:
            return
        if error.is_transient:
            self._fail(error.reason)
        else:
            self.outcome = "other"

    def _fail(self, reason: str) -> None:
        if self.caller is None:
            self.caller = calling_package(sys._getframe())
        self.outcome = "failed"
        self.reason = reason[:_MAX_REASON]
        self.ended = next(_time)


class ExampleCalls:
    """The calls of one example, while it is open: a context manager.

    A call belongs to the example of its context, which threads and tasks that the program starts take along. If
    there is none, as in a thread that was started before, it belongs to the only open example; if there are several,
    the usage of all of them is unknown.

    `calls`: in their order. `model_hosts`: hosts, with or without a port, to which every call is a model's. `is_batch`:
    it is a whole batch of an adapter, in which another call may be of another row, unless it asks the same.
    `takes_strays`: False in a process in which other code than the program's makes calls too.
    """

    def __init__(self, model_hosts: Iterable[str] = (), *, is_batch: bool = False, takes_strays: bool = True) -> None:
        self.model_hosts = frozenset(model_hosts)
        self.takes_strays = takes_strays
        self.is_batch = is_batch
        self.calls: list[Call] = []
        self._judged = 0
        self._is_usage_known = True
        self._strays: dict[int, Branch] = {}

    def __enter__(self) -> ExampleCalls:
        place.set(Branch(self, _owner(), None))
        with _lock:
            _open.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _open.discard(self)
        place.set(None)
        for call in self.calls:
            call.close()

    def lose(self) -> None:
        """Mark the usage as unknown: a call may belong to this example."""
        self._is_usage_known = False

    def stray_branch(self) -> Branch:
        """Return the branch of a thread or task that no example started."""
        owner = _owner()
        return self._strays.setdefault(owner, Branch(self, owner, None))

    @property
    def usage(self) -> dict[str, Any] | None:
        """The contract's `Usage` of the calls of models, which is their number alone if not everything is known.

        None if there was no call. Providers charge for successful responses only.
        """
        answered = [call for call in self.calls if call.status is not None and call.status < 300]
        charged = [(request.model, call) for call in answered if (request := call.asked).is_of_model]
        if not charged:
            return None
        if not self._is_usage_known:
            return {"calls": len(charged)}
        models: dict[str, dict[str, Any]] = {}
        for model, call in charged:
            answering, usage = call.answer
            if not (model or answering):
                return {"calls": len(charged)}
            add_call(models, str(model or answering), None if usage is None else tokens_of(usage))
        return usage_of(models)

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """The contract's `HostCalls` by host."""
        hosts: dict[str, dict[str, Any]] = {}
        for call in self.calls:
            if call.outcome not in ("succeeded", "failed"):
                continue
            counts = hosts.setdefault(call.host, {"succeeded": 0, "failed": 0})
            counts[call.outcome] += 1
            if call.outcome == "failed":
                counts["reason"] = call.reason
                counts.pop("retry_after_s", None)
                if call.retry_after_s is not None:
                    counts["retry_after_s"] = call.retry_after_s
        return hosts

    def failed(self) -> list[Call]:
        """Return the calls that failed transiently."""
        return [call for call in self.calls if call.outcome == "failed"]

    def is_open(self, failed: Call) -> bool:
        """Return whether no success of a later call, or of the same request, closed a failed call."""
        return not any(call.outcome == "succeeded" and self._is_repaired(failed, call) for call in self.calls)

    def is_open_and_last(self, failed: Call) -> bool:
        """Return whether a failed call is open, and no other call followed it."""
        return self._is_last(failed, self.calls) and self.is_open(failed)

    def open_model_call(self) -> Call | None:
        """Return a failed call of a model that is open, and the last of its branch since the last judgement."""
        recent = self.calls[self._judged :]
        if all(call.outcome != "failed" for call in recent):  # the usual case: no request has to be parsed
            return None
        calls = [call for call in recent if call.is_of_model]
        for failed in reversed(calls):
            if failed.outcome == "failed" and self._is_last(failed, calls) and self.is_open(failed):
                return failed
        return None

    def judged(self) -> None:
        """Exclude the calls until now from later judgements: the program has returned since."""
        self._judged = len(self.calls)

    def _is_last(self, failed: Call, calls: list[Call]) -> bool:
        """Return whether no call followed a failed one, except repetitions that are running or cancelled."""
        after = (call for call in calls if self._is_after(call, failed))
        return all(call.key == failed.key and call.outcome in (None, "cancelled") for call in after)

    def _is_repaired(self, failed: Call, call: Call) -> bool:
        is_same = call.key == failed.key or (
            call.host != failed.host and call.is_of_model and failed.is_of_model and call.prompt == failed.prompt
        )
        if is_same and (call.ended is None or call.ended > failed.began):
            return True
        return call.host == failed.host and self._is_after(call, failed)

    def _is_after(self, call: Call, failed: Call) -> bool:
        """Return whether a call follows a failed one in the example's own sequence, not beside it."""
        if failed.ended is None or call.began < failed.ended:
            return False
        if self.is_batch and call.prompt != failed.prompt:
            return False
        branch, began = call.branch, call.began
        while not failed.branch.is_within(branch):
            began = branch.began
            if branch.parent is None:
                break
            branch = branch.parent
        return began > failed.ended  # what the branch of both began, or else the thread that no example started


def _read_answer(text: bytes) -> tuple[str | None, dict[str, Any] | None]:
    answer = parsed(text) if text else None  # that of a stream is empty
    if not isinstance(answer, dict):
        return None, None
    return answer["model"] if isinstance(answer.get("model"), str) else None, usage_in(answer)


def begin(method: str, url: str, body: Any = b"") -> Call | None:
    """Return a new call of the example that runs here; None if there is none, or it is a part of another call.

    `body`: the bytes or text that is sent, also as a file, or the object that is sent as JSON; None if it is not known.
    """
    branch, owner = place.get(), _owner()
    if branch is None or branch.owner != owner:  # else the context is that of the task or thread, as usual
        branch = _here()
        if branch is not None and branch is not INSIDE:
            branch = _own_branch(branch, owner)
    if branch is INSIDE:
        return None
    if not isinstance(body, (bytes, str)):
        body = _sent(body)
    if branch is None or branch.example is None or branch.example not in _open:
        with _lock:
            examples = [example for example in _open if example.takes_strays]
        if len(examples) > 1 and read_request(endpoint_of(method, url), body).is_of_model:
            for example in examples:
                example.lose()
        if len(examples) != 1:
            return None
        branch = examples[0].stray_branch()
    return Call(branch, method, url, body)


def branched() -> Branch | None:
    """Return the branch for a task or thread that is created here; None outside of examples."""
    here = _here()
    return here if here is None or here is INSIDE else Branch(here.example, None, here)


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for a pool, each call of which is a branch that begins here.

    What a thread gives to pools before it waits begins at one time.
    """
    here = _here()
    if here is None:
        return function
    if here is not INSIDE and _is_in_loop():
        here = _own_branch(here, _owner())
    began = next(_time) if here is INSIDE or _is_in_loop() else here.waited

    def run(*given: Any, **options: Any) -> Any:
        branch, attributes = here, vars(threading.current_thread())
        if here is not INSIDE:
            branch = Branch(here.example, None, here)
            branch.began = began
        token, before = place.set(branch), attributes.get(OF_THREAD)
        attributes[OF_THREAD] = branch
        try:
            return function(*given, **options)
        finally:
            attributes[OF_THREAD] = before
            place.reset(token)

    return run


def waited() -> None:
    """Take that what runs here has waited for what it gave to a pool."""
    here = _here()
    if here is not None and here is not INSIDE:
        here.waited = next(_time)


def _here() -> Branch | None:
    """Return the branch that runs here: that of the thread, if the context is one that was copied before it began."""
    branch = place.get()
    of_thread: Branch | None = vars(threading.current_thread()).get(OF_THREAD)
    if of_thread is None or branch is INSIDE:
        return branch
    return of_thread if branch is None or (not _is_in_loop() and of_thread.is_within(branch)) else branch


def _sent(body: Any) -> Any:
    """Return the text of a body that the program may change; of one that is not known, what is equal to nothing."""
    if isinstance(body, io.BytesIO):
        return body.getvalue()
    try:
        return json.dumps(body, default=repr) if isinstance(body, (dict, list)) else object()
    except (TypeError, ValueError, RecursionError):
        return object()


def _own_branch(branch: Branch, owner: int) -> Branch:
    """Return the branch of the task or thread that runs here, which may have begun in another one."""
    if branch.owner is None:
        branch.owner = owner
        place.set(branch)
    elif branch.owner != owner:
        parent, branch = branch, Branch(branch.example, owner, branch)
        if _is_in_loop():  # a task that no method of the loop created, or a callback
            branch.began = parent.waited
        place.set(branch)
    return branch


def _owner() -> int:
    """Return what identifies the task or the thread that runs here."""
    return id(sys.modules["asyncio"].current_task()) if _is_in_loop() else threading.get_ident()


def _is_in_loop() -> bool:
    asyncio: Any = sys.modules.get("asyncio")
    return hasattr(asyncio, "current_task") and asyncio._get_running_loop() is not None
