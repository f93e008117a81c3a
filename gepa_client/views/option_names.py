"""Word messages for their reader: flags for the command, options and places for a program that calls `optimize`."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gepa_client.errors import NO_ANSWER
from gepa_client.settings.run_config import NO_PROPOSER, SETTINGS

_FLAGS = {setting.flag: name for name, setting in SETTINGS.items()}
_FLAG = re.compile(r"evolverpc [^`\n]*|--[a-z]+(?:-[a-z]+)*")

_spelling: ContextVar[Callable[[str], str] | None] = ContextVar("option names", default=None)
"""Returns the option's name of a setting; None if messages name flags."""


@contextmanager
def options_named(spelling: Callable[[str], str]) -> Iterator[None]:
    """Name options in messages of the block in place of flags; `spelling`: from the name of the setting."""
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


def names_options() -> bool:
    """Return whether a program that calls `optimize` reads the messages."""
    return _spelling.get() is not None


def is_for_typescript() -> bool:
    """Return whether a program in TypeScript that calls `optimize` reads the messages."""
    return _spelling.get() is camel_case


def where_of(server: str) -> str:
    """Return where a program runs, given what serves it; TypeScript's `optimize` has it in its process or isolated."""
    if not is_for_typescript():
        return f"behind {server}"
    return "in this process" if server.endswith("(typescript)") else "in child processes"


def blocked_hint(error: str) -> str:
    """Return why a program that TypeScript serves in its own process may have given no answer; "" for other errors."""
    if not is_for_typescript() or NO_ANSWER not in error:
        return ""
    return "the program does not answer: if its code blocks the event loop of its process, set `isolated: true`"


def with_option_names(message: str) -> str:
    """Return the message with options in place of flags, but for those of whole commands, if options are named."""
    spelling = _spelling.get()
    if spelling is None:
        return message
    message = message.replace(NO_PROPOSER, f"{NO_PROPOSER}, or give `propose`")
    return _FLAG.sub(lambda each: spelling(_FLAGS[each[0]]) if each[0] in _FLAGS else each[0], message)


def camel_case(name: str) -> str:
    """Return `maxMetricCalls` for `max_metric_calls`."""
    return re.sub(r"_([a-z0-9])", lambda each: each[1].upper(), name)
