"""Check whether a server keeps the contract, with the cases of `protocol/conformance`, in any language."""

from gepa_client.conformance.cases import Area, CaseStep, Check, load_areas, load_checks
from gepa_client.conformance.runner import CheckOutcome, ConformanceReport, Verdict, run_conformance

__all__ = [
    "Area",
    "Check",
    "CheckOutcome",
    "ConformanceReport",
    "CaseStep",
    "Verdict",
    "load_areas",
    "load_checks",
    "run_conformance",
]
