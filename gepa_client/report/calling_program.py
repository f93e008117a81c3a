"""What differs on the terminal if a program in TypeScript that calls `optimize` started the command."""

from contextvars import ContextVar

from gepa_client.errors import NO_ANSWER

by_typescript: ContextVar[bool] = ContextVar("by_typescript", default=False)
"""Whether such a program started the command."""


def where_of(server: str) -> str:
    """Return where a program runs, given what serves it; TypeScript's `optimize` has it in its process or isolated."""
    if not by_typescript.get():
        return f"behind {server}"
    return "in this process" if server.endswith("(typescript)") else "in child processes"


def blocked_hint(error: str) -> str:
    """Return why a program that TypeScript serves in its own process may have given no answer; "" for other errors."""
    if not by_typescript.get() or NO_ANSWER not in error:
        return ""
    return "the program does not answer: if its code blocks the event loop of its process, set `isolated: true`"
