"""Events of the page about what a run came to: ties, test rows, the certificate, the summary."""

from typing import Literal

from pydantic import JsonValue

from gepa_client.analysis.proposals import Excerpt
from gepa_client.journal.run_events import CopiedExample
from gepa_client.journal.tie_entries import TiedCandidate
from gepa_client.page.page_fact import Fact, Part


class SealedRows(Fact):
    """The test rows were committed to before the first iteration."""

    type: Literal["sealed"] = "sealed"
    rows: int
    digest: str


class Ties(Fact):
    """The best candidates were compared on `rows` fresh rows; `best` is the best of the run.

    `validation_rows`: those of the search. `validation_left`: validation rows among the fresh ones.
    """

    type: Literal["ties"] = "ties"
    best: int
    rows: int
    validation_rows: int
    validation_left: int
    candidates: list[TiedCandidate]


class ScoreOnTestRows(Fact):
    """A candidate's mean score on the test rows, each scored `repeats` times; replaces an earlier one of its."""

    type: Literal["tested"] = "tested"
    candidate: int
    score: float
    rows: int
    repeats: int


class CertificateFound(Fact):
    """The certificate, or in `none` why there is none; then all other members are None.

    `low` to `high`: the interval of the mean `difference` per row at `confidence`.
    """

    type: Literal["certificate"] = "certificate"
    none: str | None
    verdict: Literal["improved", "no difference", "worse"] | None
    statement: str | None
    candidate: int | None
    rows: int | None
    repeats: int | None
    seed: float | None
    best: float | None
    difference: float | None
    low: float | None
    high: float | None
    confidence: float | None
    p_value: float | None
    validation_estimate: float | None
    validation_low: float | None
    validation_high: float | None


class LeakFound(Part):
    """A text of a row in a component of the best candidate. `line`: where it begins, from 1."""

    split: str
    row: str
    component: str
    line: int
    words: int
    verbatim: bool
    answer: bool


class LeaksFound(Fact):
    """Texts of validation and test rows in the best candidate. `searched`: rows by split; `rows`: how many leak.

    `shared`: how many test rows are equal to training rows (`train`) and to validation rows (`val`).
    """

    type: Literal["leaks"] = "leaks"
    searched: dict[str, int]
    rows: int
    listed: list[LeakFound]
    shared: dict[str, int]


class Copied(Fact):
    """What candidates copied from training rows: `count` parts, the longest first."""

    type: Literal["copied_examples"] = "copied_examples"
    count: int
    candidates: list[int]
    copies: list[CopiedExample]


class Stopped(Fact):
    """A limit on money or time ended the search at this place; gone if the run is resumed (`reason` None)."""

    type: Literal["stop"] = "stop"
    at: int
    status: str | None
    reason: str | None


class FinishedRun(Fact):
    """The run has ended for now; None in `status` if it was resumed."""

    type: Literal["finished"] = "finished"
    status: str | None
    reason: str | None
    completed: str | None
    active_seconds: float | None


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


class Summary(Fact):
    """What a run came to; of a run that is driven again, what it had come to.

    `story`: sentences. `certificate`: what it states, or why there is none. `no_improvement`: why a run did not
    improve, with what to try; empty for other runs. `settings`: those that differ from their defaults.
    """

    type: Literal["summary"] = "summary"
    story: list[str]
    certificate: list[StatedFact]
    no_improvement: list[StatedFact]
    facts: list[StatedFact]
    settings: dict[str, JsonValue]
    tables: list[SummaryTable]
    failed_steps: list[FailedStep]
