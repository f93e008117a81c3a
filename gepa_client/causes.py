"""How an error is told: in one line, and with everything else that is known of it."""

import json
import traceback
from typing import Any

from protocol.errors import RpcError


def summary(error: BaseException) -> str:
    """`ValueError: text`."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def details(error: BaseException) -> str:
    """Everything else that is known of it: a server's own words, or the traceback on this side."""
    if isinstance(error, RpcError):
        return "\n".join(f"{key}: {_text(value)}" for key, value in error.details.items())
    return "".join(traceback.format_exception(error))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
