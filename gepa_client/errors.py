"""What can go wrong on the client's side of a call.

ClientError
├── ConnectionLost   the outcome is unknown: reset, own time-out, a 5xx of something in between
│   └── InstanceChanged  another server process answers now; what the old one knew is gone
├── BadResponse      an answer came, but not one the contract allows
├── Refused          this client declines to send: plain http to another machine, an unusable token or address
└── RowsError        a file of rows that cannot be read

What the server itself answers as an error is a `protocol.errors.RpcError`. `Interrupted` is none of these: see there.
"""

from typing import Literal

InterruptStatus = Literal["paused", "cancelled", "failed"]


class ClientError(Exception):
    """The base of every error this package raises for a call that did not succeed."""


class ConnectionLost(ClientError):
    """Nobody knows what became of the request; with a `call_id` the same call may be sent again.

    `sent`: False where the connection was never made, so that the request certainly did not run.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class InstanceChanged(ConnectionLost):
    """The connection was lost and another instance answers at the address: its call ids and refs begin anew."""


class BadResponse(ClientError):
    """The peer answered something that is not JSON-RPC, breaks the schema, is too large, or redirects."""


class Refused(ClientError):
    """The request was not sent because it would be unsafe or cannot be written."""


class RowsError(ClientError):
    """A file of rows is absent, malformed, or holds something that is not a JSON object."""


class Interrupted(BaseException):
    """The run must stop here, with everything kept; deliberately no `Exception`.

    GEPA swallows `Exception` in reflection, in reflective datasets and in callbacks, and would go on with every
    proposal lost. Catch this one around `gepa.optimize` only.

    `status`: `paused` (may be taken up again), `cancelled` (somebody wished it so), `failed` (trying again is useless).
    """

    def __init__(self, status: InterruptStatus, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status: InterruptStatus = status
        self.reason = reason
