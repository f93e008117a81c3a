"""How an error is told: in one line, and with everything else that is known of it."""

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gepa_client.errors import ConnectionLost, JournalError, RecordedFailure, Refused, RowsError
from protocol.errors import ProgramFailed, RpcError, Unauthorized

OWN_WORDS = (ConnectionLost, Refused, Unauthorized, JournalError, RecordedFailure, RowsError)
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
    """What a server's error says in data rather than words, on one line; texts of several lines are left out."""
    told = {key: _text(value) for key, value in error.details.items()}
    return "; ".join(f"{key}: {text}" for key, text in told.items() if text and "\n" not in text)


def details(error: BaseException) -> str:
    """Everything else that is known of it: a server's own words, or the traceback on this side."""
    if isinstance(error, RpcError):
        return "\n".join(f"{key}: {_text(value)}" for key, value in error.details.items())
    return "".join(traceback.format_exception(error))


def plain_error(told: Mapping[str, Any]) -> str:
    """`example '7': ValueError: no` and its traceback, from a result's `error` with the example's `id` beside it."""
    first = f"example {told.get('id')!r}: {told.get('type') or told.get('status')}: {told.get('message', '')}"
    return f"{first}\n{told['traceback']}" if told.get("traceback") else first


def unreadable(path: Path | str, error: OSError | UnicodeDecodeError) -> str:
    """`rows.jsonl: no such file`: why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return f"{path}: no such file"
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
