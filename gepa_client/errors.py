"""What can go wrong on the client's side of a call.

ClientError
├── ConnectionLost   the outcome is unknown: reset, own time-out, a 5xx of something in between
│   └── InstanceChanged  another server process answers now; what the old one knew is gone
├── BadResponse      an answer came, but not one the contract allows
│   └── AnswerTooLarge   it has more bytes than are accepted
├── Refused          this client declines to send: plain http to another machine, an unusable token or address
├── RowsError        a file of rows that cannot be read
├── RecordedFailure  what failed when the run was recorded, told again
└── JournalError     the journal of a run cannot be used as asked
    ├── JournalMismatch   GEPA asked something else than what is recorded at this number
    ├── NoSuchRun         no run of this name in the store
    ├── RunExists         a run of this id is there already
    ├── StoreTooNew       the store was written by a newer version
    ├── StoreUnavailable  full, locked or unreachable; nothing was lost, and trying later can help
    ├── ClaimLost         another process drives the run now
    ├── RunBusy           another process drives the run, and lives
    └── NumberTaken       another process wrote at this number: the same, found out later

What the server itself answers as an error is a `protocol.errors.RpcError`. `Interrupted` is none of these: see there.
"""

from typing import Literal

InterruptStatus = Literal["completed", "paused", "cancelled", "failed"]


class ClientError(Exception):
    """The base of every error this package raises for a call that did not succeed."""


class ConnectionLost(ClientError):
    """Nobody knows what became of the request; with a `call_id` the same call may be sent again.

    `sent`: False where the connection was never made, so that the request certainly did not run. `refused`: at last
    nobody listened at the address, so that whatever process was there has ended.
    """

    def __init__(self, message: str, *, sent: bool = True, refused: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.refused = refused


class InstanceChanged(ConnectionLost):
    """The connection was lost and another instance answers at the address: its call ids and refs begin anew."""


class BadResponse(ClientError):
    """The peer answered something that is not JSON-RPC, breaks the schema, is too large, or redirects."""


class AnswerTooLarge(BadResponse):
    """The answer has at least `size` bytes, more than the `accepted`."""

    def __init__(self, size: int, accepted: int) -> None:
        super().__init__(f"answer of {size} bytes, more than {accepted} accepted")
        self.size = size
        self.accepted = accepted


class Refused(ClientError):
    """The request was not sent because it would be unsafe or cannot be written."""


class RowsError(ClientError):
    """A file of rows is absent, malformed, or holds something that is not a JSON object."""


class RecordedFailure(ClientError):
    """What failed when the run was recorded, told again."""


class JournalError(ClientError):
    """The base of what can be wrong with a journal."""


class JournalMismatch(JournalError):
    """The request at this number is not the one recorded; both are named. Going on would pay for another run."""


class StoreDamaged(JournalError):
    """What the store holds cannot be read, or is not what was written."""


class NoSuchRun(JournalError):
    """The store holds no such run."""


class RunExists(JournalError):
    """The store holds a run of this id."""


class StoreTooNew(JournalError):
    """The store's schema is newer than this program."""


class StoreUnavailable(JournalError):
    """The store cannot be read or written at present; what was written stays."""


class ClaimLost(JournalError):
    """The run is driven by another process."""


class RunBusy(JournalError):
    """The run cannot be taken: whoever drives it shows signs of life."""


class NumberTaken(JournalError):
    """An entry or attempt of this number was written by another process."""


class Interrupted(BaseException):
    """The run must stop here, with everything kept; deliberately no `Exception`.

    GEPA swallows `Exception` in reflection, in reflective datasets and in callbacks, and would go on with every
    proposal lost. Catch this one around `gepa.optimize` only.

    `status`: `completed` (a limit was reached), `paused` (may be taken up again), `cancelled`
    (somebody wished it so), `failed` (trying again is useless).
    """

    def __init__(self, status: InterruptStatus, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status: InterruptStatus = status
        self.reason = reason
