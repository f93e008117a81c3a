"""Events of the page about what a run came to: the certificate, the end, the summary."""

from typing import Literal

from pydantic import JsonValue

from gepa_client.analysis.proposals import Excerpt
from gepa_client.certificate.certificate import Certificate
from gepa_client.page.page_fact import Part


class CertificateFound(Part):
    """The certificate, or in `none` why there is none."""

    event: Literal["certificate"] = "certificate"
    certificate: Certificate | None = None
    none: str | None = None


class StatedFact(Part):
    """A fact in words."""

    label: str
    text: str


class SummaryTable(Part):
    """A table; each row begins with a name."""

    heading: str
    columns: list[str]
    rows: list[list[str]]


class FailedStep(Part):
    """A step of an iteration that failed, with its message and details."""

    iteration: int
    step: str
    text: Excerpt


class Summary(Part):
    """What a run came to; of a run that is driven again, what it had come to.

    `story`: sentences. `certificate`: what it states, or why there is none. `no_improvement`: why a run did not
    improve, with what to try; empty for other runs. `settings`: those that differ from their defaults.
    """

    event: Literal["summary"] = "summary"
    story: list[str]
    certificate: list[StatedFact]
    no_improvement: list[StatedFact]
    facts: list[StatedFact]
    settings: dict[str, JsonValue]
    tables: list[SummaryTable]
    failed_steps: list[FailedStep]
