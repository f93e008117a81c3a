"""What became of each check, and of the endpoint as a whole."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gepa_client.conformance.cases import Check


class Verdict(StrEnum):
    """`warned`: a SHOULD does not hold. `skipped`: the check does not apply to this endpoint."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class CheckOutcome:
    """One check's verdict; `reason` says why it failed, warned or was skipped."""

    check: Check
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The outcome as `--json` prints it."""
        return {
            "id": self.check.id,
            "title": self.check.title,
            "level": self.check.level,
            "section": self.check.section,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Report:
    """All outcomes for one endpoint. `endpoint`: server and program as `discover` names them."""

    url: str
    endpoint: str
    outcomes: tuple[CheckOutcome, ...]

    def count(self, verdict: Verdict) -> int:
        """How many checks ended so."""
        return sum(outcome.verdict is verdict for outcome in self.outcomes)

    @property
    def conforms(self) -> bool:
        """No MUST is broken, and something was checked."""
        return self.count(Verdict.FAILED) == 0 and self.count(Verdict.PASSED) > 0

    @property
    def last_line(self) -> str:
        """`N passed, M failed`."""
        return f"{self.count(Verdict.PASSED)} passed, {self.count(Verdict.FAILED)} failed"

    def as_json(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {
            "url": self.url,
            "endpoint": self.endpoint,
            "conforms": self.conforms,
            **{verdict.value: self.count(verdict) for verdict in Verdict},
            "checks": [outcome.as_json() for outcome in self.outcomes],
        }
