"""Every error the contract knows, one code and one meaning each.

RpcError
├── ParseError              -32700  the body is not JSON (or not UTF-8, holds NaN, nests too deep)
├── InvalidRequest          -32600  it is JSON but not a JSON-RPC 2.0 request, or a batch where none are taken
├── MethodNotFound          -32601  no such method here; its capability may not be offered
├── InvalidParams           -32602  a field is unknown, missing or of the wrong kind; `errors` gives each path
├── InternalError           -32603  a defect of the server; never carries an exception's text
├── VersionNotSupported     -32020  `supported` versions, and the one `requested`
├── Unauthorized            -32021  no token, a wrong one, a foreign Host or Origin
├── UnknownCandidate        -32022  not the program's components (`unknown`, `missing`), or an absent `commit`
├── UnknownExample          -32023  no such split or id among the rows the server holds
├── TrajectoryExpired       -32024  the `refs` are gone; trace the minibatch afresh
├── ProgramFailed           -32025  the program cannot start or cannot answer this call at all (`stage`, `log_tail`)
├── MutationRejected        -32026  the mutation left no trace (`stage`, `reason`)
├── CallCancelled           -32027  the call was cancelled, or no client asked for its result any more
├── CallNotFound            -32028  no such `call_id` here: never seen, or its answer was let go
├── CallIdConflict          -32029  the `call_id` was used for another method or other params
├── Overloaded              -32030  no room now, or shutting down; try again after `retry_after_s`
└── LimitExceeded           -32031  the request is beyond a stated limit (`limit`, `allowed`, `given`)

Servers raise these; the dispatcher writes them with `to_wire`. Clients read them with `from_wire`, which picks the
class by code alone: a name a peer sent is never looked up.
"""

from typing import Any, ClassVar

from protocol.base import JsonValue


class RpcError(Exception):
    """An error as the wire carries it: `code`, `message`, `retryable` and further `details`.

    `retryable`: the same request, later or on another endpoint, can succeed.
    """

    code: ClassVar[int | None] = None
    default_message: ClassVar[str] = "Error"
    default_retryable: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: int | None = None, message: str = "", retryable: bool = False) -> None:
        """Define an error of the contract with its code and usual message; without a code, a kind of one of these."""
        if code is not None:
            cls.code, cls.default_message, cls.default_retryable = code, message, retryable

    def __init__(
        self,
        message: str | None = None,
        *,
        retryable: bool | None = None,
        code: int | None = None,
        **details: JsonValue,
    ) -> None:
        self.message = message if message is not None else self.default_message
        self.retryable = self.default_retryable if retryable is None else retryable
        self.wire_code = code if code is not None else (self.code if self.code is not None else InternalError.code)
        self.details = details
        super().__init__(self.message)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON-RPC error object: `{code, message, data: {retryable, ...details}}`."""
        return {
            "code": self.wire_code,
            "message": self.message,
            "data": {"retryable": self.retryable, **self.details},
        }

    @staticmethod
    def from_wire(error: dict[str, Any]) -> "RpcError":
        """Return the exception for a JSON-RPC error object; an unknown code gives a plain `RpcError` that keeps it."""
        data = error.get("data")
        details = {str(key): value for key, value in data.items()} if isinstance(data, dict) else {}
        retryable = details.pop("retryable", None)
        code = error.get("code")
        message = error.get("message")
        known = code if type(code) is int else None  # a peer's `true` is no code
        kind = BY_CODE.get(known, RpcError) if known is not None else RpcError
        rebuilt = kind(
            message if isinstance(message, str) else None,
            retryable=retryable if isinstance(retryable, bool) else None,
            code=known,
        )
        rebuilt.details.update(details)
        return rebuilt


class ParseError(RpcError, code=-32700, message="Parse error"):
    """The body is not JSON in UTF-8, holds NaN or Infinity, or nests beyond the server's limit."""


class InvalidRequest(RpcError, code=-32600, message="Invalid Request"):
    """JSON, but not a JSON-RPC 2.0 request."""


class MethodNotFound(RpcError, code=-32601, message="Method not found"):
    """The server does not offer this method."""


class InvalidParams(RpcError, code=-32602, message="Invalid params"):
    """The params do not fit the method; `errors` is a list of `{path, message}`."""


class InternalError(RpcError, code=-32603, message="Internal error", retryable=True):
    """A defect of the server; the text stays in the server's own log."""


class VersionNotSupported(RpcError, code=-32020, message="Protocol version not supported"):
    """The request names a version the server does not speak."""


class Unauthorized(RpcError, code=-32021, message="Unauthorized"):
    """The token, `Host` or `Origin` is not one the server accepts."""


class UnknownCandidate(RpcError, code=-32022, message="Unknown candidate"):
    """The candidate's components are not those of the program, or the server does not have its code.

    `commit`: one that `import_commits` would bring.
    """


class UnknownExample(RpcError, code=-32023, message="Unknown example"):
    """The server holds no such row."""


class TrajectoryExpired(RpcError, code=-32024, message="Trajectory expired"):
    """The trajectories behind `refs` are gone. The scores recorded with them stand."""


class ProgramFailed(RpcError, code=-32025, message="Program failed"):
    """The program cannot start, or failed at a call that has no example to blame."""


class MutationRejected(RpcError, code=-32026, message="Mutation rejected"):
    """The mutation was refused at `stage` for `reason`; nothing was changed.

    Stages: `agent`, `edit`, `empty`, `paths`, `size`, `environment`, `build`, `check`, `start`, `push`.
    """


class CallCancelled(RpcError, code=-32027, message="Call cancelled", retryable=True):
    """The call was cancelled, or abandoned because no client asked for its result."""


class CallNotFound(RpcError, code=-32028, message="Call not found"):
    """This instance knows no such `call_id`."""


class CallIdConflict(RpcError, code=-32029, message="Call id conflict"):
    """The `call_id` already stands for another request."""


class Overloaded(RpcError, code=-32030, message="Overloaded", retryable=True):
    """The server takes no more work at present."""


class LimitExceeded(RpcError, code=-32031, message="Limit exceeded"):
    """The request is larger than a limit the server states in `discover`."""


ALL: tuple[type[RpcError], ...] = tuple(RpcError.__subclasses__())

BY_CODE: dict[int, type[RpcError]] = {kind.code: kind for kind in ALL if kind.code is not None}
