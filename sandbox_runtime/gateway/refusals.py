"""Refusals as they are told: each kind at once, repetitions counted, so that asking again and again floods nobody."""

from collections.abc import Callable

from sandbox_runtime.gateway.calls import Refusal

KINDS = 200
"""How many different refusals of one sandbox are told one by one."""

SHOWN = 200
"""Characters of what was asked."""


class Refusals:
    """Those of one sandbox."""

    def __init__(self, sandbox: str, tell: Callable[[Refusal], None]) -> None:
        self._sandbox = sandbox
        self._tell = tell
        self._repeated: dict[tuple[str, str], int] = {}

    def add(self, what: str, reason: str) -> None:
        """Tell it, or count it where it was told before."""
        key = (shown(what), reason)
        if key not in self._repeated and len(self._repeated) >= KINDS:
            key = ("further refusals", "more than are told one by one")
        if key in self._repeated:
            self._repeated[key] += 1
        else:
            self._repeated[key] = 0
            self._tell(Refusal(self._sandbox, *key))

    def close(self) -> None:
        """Tell the repetitions."""
        repeated, self._repeated = self._repeated, {}
        for key, times in repeated.items():
            if times:
                self._tell(Refusal(self._sandbox, *key, times))


def shown(text: str) -> str:
    """Printable ASCII of a bounded length: it is a stranger's, and goes to terminals and reports."""
    return ascii(text[:SHOWN])[1:-1][:SHOWN]
