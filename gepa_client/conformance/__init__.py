"""Does a server keep the contract? Runs the cases of `protocol/conformance` against any endpoint in any language."""

from gepa_client.conformance.cases import Area, Check, Step, load_areas, load_checks
from gepa_client.conformance.outcomes import CheckOutcome, Report, Verdict
from gepa_client.conformance.runner import run_conformance

__all__ = [
    "Area",
    "Check",
    "CheckOutcome",
    "Report",
    "Step",
    "Verdict",
    "load_areas",
    "load_checks",
    "run_conformance",
]
