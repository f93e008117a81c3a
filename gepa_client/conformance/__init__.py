"""Check whether a server keeps the contract, with the cases of `protocol/conformance`, in any language."""

from gepa_client.conformance.cases import CORE, CaseStep, Check, load_checks
from gepa_client.conformance.runner import CheckOutcome, ConformanceReport, Level, Verdict, run_conformance

__all__ = [
    "CORE",
    "Check",
    "CheckOutcome",
    "ConformanceReport",
    "CaseStep",
    "Level",
    "Verdict",
    "load_checks",
    "run_conformance",
]
