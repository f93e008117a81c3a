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


class ParseError(RpcError):
    """The body is not JSON in UTF-8, holds NaN or Infinity, or nests beyond the server's limit."""

    code = -32700
    default_message = "Parse error"


class InvalidRequest(RpcError):
    """JSON, but not a JSON-RPC 2.0 request."""

    code = -32600
    default_message = "Invalid Request"


class MethodNotFound(RpcError):
    """The server does not offer this method."""

    code = -32601
    default_message = "Method not found"


class InvalidParams(RpcError):
    """The params do not fit the method; `errors` is a list of `{path, message}`."""

    code = -32602
    default_message = "Invalid params"


class InternalError(RpcError):
    """A defect of the server; the text stays in the server's own log."""

    code = -32603
    default_message = "Internal error"
    default_retryable = True


class VersionNotSupported(RpcError):
    """The request names a version the server does not speak."""

    code = -32020
    default_message = "Protocol version not supported"


class Unauthorized(RpcError):
    """The token, `Host` or `Origin` is not one the server accepts."""

    code = -32021
    default_message = "Unauthorized"


class UnknownCandidate(RpcError):
    """The candidate's components are not those of the program, or the server does not have its code.

    `commit`: one that `import_commits` would bring.
    """

    code = -32022
    default_message = "Unknown candidate"


class UnknownExample(RpcError):
    """The server holds no such row."""

    code = -32023
    default_message = "Unknown example"


class TrajectoryExpired(RpcError):
    """The trajectories behind `refs` are gone. The scores recorded with them stand."""

    code = -32024
    default_message = "Trajectory expired"


class ProgramFailed(RpcError):
    """The program cannot start, or failed at a call that has no example to blame."""

    code = -32025
    default_message = "Program failed"


class MutationRejected(RpcError):
    """The mutation was refused at `stage` for `reason`; nothing was changed.

    Stages: `agent`, `edit`, `empty`, `paths`, `size`, `environment`, `build`, `check`, `start`, `push`.
    """

    code = -32026
    default_message = "Mutation rejected"


class CallCancelled(RpcError):
    """The call was cancelled, or abandoned because no client asked for its result."""

    code = -32027
    default_message = "Call cancelled"
    default_retryable = True


class CallNotFound(RpcError):
    """This instance knows no such `call_id`."""

    code = -32028
    default_message = "Call not found"


class CallIdConflict(RpcError):
    """The `call_id` already stands for another request."""

    code = -32029
    default_message = "Call id conflict"


class Overloaded(RpcError):
    """The server takes no more work at present."""

    code = -32030
    default_message = "Overloaded"
    default_retryable = True


class LimitExceeded(RpcError):
    """The request is larger than a limit the server states in `discover`."""

    code = -32031
    default_message = "Limit exceeded"


ALL: tuple[type[RpcError], ...] = tuple(RpcError.__subclasses__())

BY_CODE: dict[int, type[RpcError]] = {kind.code: kind for kind in ALL if kind.code is not None}
