"""What can go wrong on the client's side of a call.

ClientError
├── ConnectionLost   the outcome is unknown: reset, own time-out, a 5xx of a proxy
│   └── InstanceChanged  another server process responds now; the state of the old one is lost
├── BadResponse      the response breaks the contract
│   └── AnswerTooLarge   the response has more bytes than are accepted
├── Refused          this client declines to send: plain http to another machine, an unusable token or address
├── RowsError        a file of rows that cannot be read
├── NoVerdict        a server that joins has no results, or there are none of the run, to compare
├── RecordedFailure  the failure of a recorded run, raised again on replay
├── NoCertificate    the record of a run cannot show whether it improved the program
└── JournalError     the journal of a run cannot be used
    ├── JournalMismatch   GEPA's request differs from the recorded one of this number
    ├── NoSuchRun         no run of this name in the store
    ├── RunExists         the store has a run of this id already
    ├── RequestExists     the run has another request of this id
    ├── SteeringRefused   the run cannot do what a user asks of it
    ├── StoreVersionDiffers  the store was written by another version
    ├── StoreUnavailable  full, locked or unreachable; nothing was lost, and a later attempt can succeed
    ├── ClaimLost         another process drives the run now
    ├── RunBusy           another process drives the run, and lives
    └── NumberTaken       another process wrote an entry of this number

What the server itself answers as an error is a `protocol.errors.RpcError`. `Interrupted` is none of these: see there.
"""

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from evolverpc_common.files import no_such_file
from evolverpc_common.settings.sources import SettingsError
from protocol.errors import ProgramFailed, RpcError, Unauthorized

InterruptStatus = Literal["completed", "paused", "cancelled", "failed"]


class ClientError(Exception):
    """The base of every error this package raises for a call that did not succeed."""


NO_SCORE = (
    "the program has no score function: write `score(example, output)` beside `run`, which returns a number or "
    "(number, feedback), or name a server that scores its results as `score_with`"
)
"""Why results without a score end a run, also one that ignores the other findings of the check."""

NO_ANSWER = "no answer from"
"""How the message of a `ConnectionLost` begins after a connection that was made, but stayed silent."""


class ConnectionLost(ClientError):
    """The outcome of the request is unknown; with a `call_id` the same call may be sent again.

    `sent`: False if the connection was never made, so that the request certainly did not run. `refused`: at last
    no process listened at the address, so the server process there has ended.
    """

    def __init__(self, message: str, *, sent: bool = True, refused: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.refused = refused


class InstanceChanged(ConnectionLost):
    """The connection was lost and another instance answers at the address: its call ids and refs begin anew."""


class BadResponse(ClientError):
    """The response is not JSON-RPC, breaks the schema, is too large, or redirects."""


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


class NoVerdict(ClientError):
    """Results of two servers cannot be compared at present: one of them has none, by no fault of its program."""


class RecordedFailure(ClientError):
    """The failure of a recorded run, raised again on replay."""


class NoCertificate(ClientError):
    """The record of a run cannot show whether it improved the program; the message states why and what to do."""


class JournalError(ClientError):
    """The base of what can be wrong with a journal."""


class JournalMismatch(JournalError):
    """The request at this number is not the one recorded; both are named. Continuing would pay for another run."""


class StoreDamaged(JournalError):
    """What the store holds cannot be read, or is not what was written."""


class NoSuchRun(JournalError):
    """The store holds no such run."""


class RunExists(JournalError):
    """The store holds a run of this id."""


class RequestExists(JournalError):
    """The run has a request of this id that asks for something else."""


class SteeringRefused(JournalError):
    """The run cannot do what a user asks of it; the message states why."""


class StoreVersionDiffers(JournalError):
    """The store was written by another version, whose schema differs."""


class StoreUnavailable(JournalError):
    """The store cannot be read or written at present; what was written stays."""


class ClaimLost(JournalError):
    """The run is driven by another process."""


class RunBusy(JournalError):
    """The run cannot be claimed: the process that drives it is alive."""


class NumberTaken(JournalError):
    """An entry or attempt of this number was written by another process."""


class Interrupted(BaseException):
    """The run must stop here, with everything kept; deliberately no `Exception`.

    GEPA swallows `Exception` in reflection, in reflective datasets and in callbacks, and would continue with every
    proposal lost. Catch this one around `gepa.optimize` only.

    `status`: `completed` (a limit was reached), `paused` (may be taken up again), `cancelled`
    (a user requested it), `failed` (trying again is useless). `infrastructure`: what the run needs was lost, such as
    its store, its lease or its sandboxes; the same run can continue elsewhere without a change.
    """

    def __init__(self, status: InterruptStatus, reason: str, *, infrastructure: bool = False) -> None:
        super().__init__(f"{status}: {reason}")
        self.status: InterruptStatus = status
        self.reason = reason
        self.infrastructure = infrastructure

    def again(self) -> "Interrupted":
        """Return a new exception for the same stop, to be raised in another thread or task."""
        return Interrupted(self.status, self.reason, infrastructure=self.infrastructure)


OWN_WORDS = (ConnectionLost, Refused, Unauthorized, NoVerdict, JournalError, RecordedFailure, RowsError, SettingsError)
"""Errors whose text is a sentence for the user, which the name of their class would only make harder to read."""


def summary(error: BaseException) -> str:
    """`ValueError: text`; a server's error with its short data: `UnknownCandidate: Unknown candidate (missing: a)`."""
    text = str(error)
    if isinstance(error, RpcError) and not isinstance(error, ProgramFailed) and (known := data_of(error)):
        text = f"{text} ({known})"
    if isinstance(error, OWN_WORDS) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def data_of(error: RpcError) -> str:
    """Return the data of a server's error on one line, without texts of several lines."""
    texts = {key: _text(value) for key, value in error.details.items()}
    return "; ".join(f"{key}: {text}" for key, text in texts.items() if text and "\n" not in text)


def details(error: BaseException) -> str:
    """Return what the server adds to its message, or the traceback on this side; "" if its message is enough."""
    if isinstance(error, OWN_WORDS):
        return ""
    if isinstance(error, RpcError):
        known = {key: _text(value) for key, value in error.details.items()}
        return "\n".join(f"{key}: {text}" for key, text in known.items() if text and text not in error.message)
    return "".join(traceback.format_exception(error))


def plain_error(failed: Mapping[str, Any]) -> str:
    """Return `example '7': ValueError: no` from a result's `error` with the example's `id` added.

    A message of several lines may be a whole traceback, whose last line states what happened.
    """
    message = "".join(str(failed.get("message") or "").strip().splitlines()[-1:])
    return f"example {failed.get('id')!r}: {failed.get('type') or failed.get('status')}: {message}"


def unreadable(path: Path | str, error: OSError | UnicodeDecodeError) -> str:
    """`rows.jsonl: no such file`: why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return no_such_file(path)
    if isinstance(error, UnicodeDecodeError):
        return f"{path}: not text in UTF-8"
    return f"{path}: cannot be read: {error.strerror or error}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_text(part) for part in value)
    if isinstance(value, dict) and value.keys() == {"path", "message"}:  # one of `InvalidParams.errors`
        return f"{value['path']}: {value['message']}"
    return json.dumps(value, ensure_ascii=False)
