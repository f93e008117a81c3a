"""What the checks of one endpoint have found: a verdict for each, and for each part of the contract."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gepa_client.conformance.cases import CORE, Check


class Verdict(StrEnum):
    """`warned`: a SHOULD does not hold. `skipped`: does not apply. `not_verified`: applies, and could not run."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"
    NOT_VERIFIED = "not_verified"


@dataclass(frozen=True)
class CheckOutcome:
    """One check's verdict.

    `reason`: why it has not passed. Of one that failed or warned also what was `expected`, what was `found`, and the
    `request` as a line to paste into a shell, empty if it is about none; a long body is written to a temporary file.
    """

    check: Check
    verdict: Verdict
    reason: str = ""
    expected: str = ""
    found: str = ""
    request: Callable[[], str] = str
    seconds: float = 0.0

    @property
    def page(self) -> str:
        """The section of the page that requires it, as a link."""
        return f"docs/protocol.md#{self.check.section.lower().replace(' ', '-')}"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as `--json` prints it."""
        return {
            "id": self.check.id,
            "title": self.check.title,
            "level": self.check.level,
            "part": self.check.part,
            "page": self.page,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "expected": self.expected,
            "found": self.found,
            "request": self.request(),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class ConformanceReport:
    """All outcomes for one endpoint, which is a URL.

    `described`: server and program as `discover` names them. `lost`: why the run ended before its end; empty if it did
    not.
    """

    endpoint: str
    described: str
    outcomes: tuple[CheckOutcome, ...]
    lost: str = ""

    def count(self, verdict: Verdict) -> int:
        """Return how many checks have this verdict."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)

    @property
    def conforms(self) -> bool:
        """Every check that applies ran, and no MUST is broken."""
        return set(self.parts.values()) == {Verdict.PASSED}

    @property
    def parts(self) -> dict[str, Verdict]:
        """Core and every capability that was to be checked -> `passed`, `failed` or `not_verified`."""
        found: dict[str, set[Verdict]] = {}
        for outcome in self.outcomes:
            if outcome.verdict is not Verdict.SKIPPED:
                found.setdefault(outcome.check.part, set()).add(outcome.verdict)
        return {part: _of_part(verdicts) for part, verdicts in found.items()}

    @property
    def counts(self) -> str:
        """`N passed, M failed`."""
        return f"{self.count(Verdict.PASSED)} passed, {self.count(Verdict.FAILED)} failed"

    @property
    def last_line(self) -> str:
        """The state of core and of every capability, such as `core verified; failed: async; NOT verified: refs`."""
        parts = self.parts
        line = [f"core {_IN_WORDS[parts.pop(CORE)]}"] if CORE in parts else []
        for verdict, words in _IN_WORDS.items():
            named = [part for part, state in parts.items() if state is verdict]
            line += [f"{words}: {', '.join(named)}"] if named else []
        return "; ".join(line) or "nothing verified: no check applies"

    def as_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "endpoint": self.endpoint,
            "described": self.described,
            "conforms": self.conforms,
            "lost": self.lost or None,
            "parts": {part: verdict.value for part, verdict in self.parts.items()},
            **{verdict.value: self.count(verdict) for verdict in Verdict},
            "checks": [outcome.as_json() for outcome in self.outcomes],
        }


_IN_WORDS = {Verdict.NOT_VERIFIED: "NOT verified", Verdict.FAILED: "failed", Verdict.PASSED: "verified"}


def _of_part(verdicts: set[Verdict]) -> Verdict:
    if Verdict.FAILED in verdicts:
        return Verdict.FAILED
    return Verdict.NOT_VERIFIED if Verdict.NOT_VERIFIED in verdicts else Verdict.PASSED
