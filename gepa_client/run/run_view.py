"""The present state of a run, folded from its events: everything that shows a run begins here."""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pydantic import BaseModel

from gepa_client.analysis.proposals import RecordedProposals
from gepa_client.certificate.certificate import Certificate
from gepa_client.evolution.candidate_names import code_label
from gepa_client.journal import run_events as events
from gepa_client.journal.answer_entries import TieDecision
from gepa_client.journal.history import selection_name
from gepa_client.run.output_folder import HostTotals

RATE_WINDOW_S = 30.0


@dataclass(frozen=True)
class Headline:
    """The two scores of a run: of its seed and of its best candidate, and over which rows."""

    rows: str
    seed: float
    best: float
    of_test: bool

    @classmethod
    def of_comparison(cls, ties: events.TiesCompared) -> Self | None:
        """Return the scores over the rows of the search and those compared after it.

        None if the seed was not compared: it is on validation rows that the search left out, and on no others.
        """
        means = {each.index: each.mean for each in ties.candidates}
        if not ties.validation_left or 0 not in means:
            return None
        only = ties.validation_left == ties.rows
        rows = f"{ties.validation_rows + ties.rows} {'validation ' if only else ''}rows"
        return cls(rows, means[0], means[ties.best], of_test=False)


@dataclass
class RunView:
    """What is known so far. Every list is in the order things happened; candidates are by index."""

    started: events.Started | None = None
    phase: events.PhaseName | None = None
    iteration: int = 0
    proposals: RecordedProposals = field(default_factory=RecordedProposals)
    candidates: list[events.CandidateFound] = field(default_factory=list)
    rejected: list[events.Rejected] = field(default_factory=list)
    skipped: list[events.NoProposal] = field(default_factory=list)
    reflection_error: str = ""
    """Why the reflection model did not answer the last time; empty if it did, or was not asked yet."""
    mutations: list[events.Mutated | events.MutationRejected] = field(default_factory=list)
    mutating: dict[int, str] = field(default_factory=dict)
    """The last progress of each mutation that is being made, by its number."""
    model_calls: events.ModelCalls | None = None
    refusals: list[events.CallRefused] = field(default_factory=list)
    """What a gateway refused, each different thing once."""
    hosts: dict[str, HostTotals] = field(default_factory=dict)
    """What the sandboxes of the run reached through the gateway, by `host:port`."""
    failures: list[events.StepFailed] = field(default_factory=list)
    failed_examples: events.FailedExamples | None = None
    retried: events.RetriedExamples | None = None
    cut_records: list[events.RecordsCut] = field(default_factory=list)
    unusable_answers: list[events.UnusableAnswer] = field(default_factory=list)
    """Answers of reflection that were not used, or only the second one."""
    copied: events.CopiedExamples | None = None
    warnings: list[str] = field(default_factory=list)
    sealed: events.Sealed | None = None
    certificate: Certificate | None = None
    no_certificate: str | None = None
    """Why there is none; None before the run has ended."""
    best_index: int = 0
    front: list[int] = field(default_factory=list)
    """Indices on the Pareto front."""
    steered: list[events.Steered] = field(default_factory=list)
    ties: events.TiesCompared | None = None
    tested: dict[int, events.Tested] = field(default_factory=dict)
    finalized: events.Finalized | None = None
    finished: events.Finished | None = None
    budget_used: int = 0
    evaluated: int = 0
    in_flight: int = 0
    slots: int = 0
    waiting_calls: int = 0
    """Calls that wait for one of the slots."""
    waiting: events.FleetChanged | None = None
    """The lack of any server that answers; None while there is one."""
    refused_endpoints: dict[str, str] = field(default_factory=dict)
    """Why an endpoint was refused, by its URL."""
    up: int = 1
    endpoints: int = 1
    spent_usd: float = 0.0
    seconds: float = 0.0
    _pace: list[tuple[float, int]] = field(default_factory=list)

    def apply(self, event: events.Event) -> None:
        """Take one event into account."""
        self.seconds = max(self.seconds, event.seconds)
        self.iteration = max(self.iteration, getattr(event, "iteration", 0))
        self.proposals.apply(event)
        match event:
            case events.Started():
                self.started = event
            case events.Phase():
                self.phase = event.phase
                self._pace = [(event.seconds, self.evaluated)]
            case events.FleetChanged():
                if event.kind in ("waiting", "back", "joined"):
                    self.waiting = event if event.kind == "waiting" else None
                if event.url is not None and event.kind == "refused":
                    self.refused_endpoints[event.url] = event.detail
                elif event.url is not None:
                    self.refused_endpoints.pop(event.url, None)
            case events.Progress():
                self.evaluated, self.in_flight = event.evaluated, event.in_flight
                self.slots, self.waiting_calls = event.slots, event.waiting
                self.up, self.endpoints, self.spent_usd = event.up, event.endpoints, event.spent_usd
                self._pace.append((event.seconds, event.evaluated))
                while len(self._pace) > 2 and self._pace[1][0] <= event.seconds - RATE_WINDOW_S:
                    del self._pace[0]
            case events.ModelCalls():
                self.model_calls = event
            case events.CallRefused():
                again = [(each.what, each.reason) == (event.what, event.reason) for each in self.refusals]
                if any(again):
                    self.refusals[again.index(True)] = event
                else:
                    self.refusals.append(event)
            case events.Budget():
                self.budget_used = event.metric_calls
            case events.CandidateFound():
                self.candidates.append(event)
                self.best_index, self.front = event.best, event.front
                self.budget_used = max(self.budget_used, event.metric_calls)
            case events.Rejected():
                self.rejected.append(event)
            case events.NoProposal():
                self.skipped.append(event)
            case events.RecordsCut():
                self.cut_records.append(event)
            case events.UnusableAnswer():
                self.unusable_answers.append(event)
            case events.ReflectionRetried():
                self.reflection_error = event.error
            case events.ProposalBegun():
                self.reflection_error = ""
            case events.MutationStarted():
                self.mutating[event.number] = ""
            case events.MutationProgress():
                if event.number in self.mutating:
                    self.mutating[event.number] = event.message
            case events.Mutated() | events.MutationRejected():
                self.mutating.pop(event.number, None)
                self.mutations.append(event)
            case events.StepFailed():
                self.failures.append(event)
            case events.FailedExamples():
                self.failed_examples = event
            case events.RetriedExamples():
                self.retried = event
            case events.CopiedExamples():
                self.copied = event
            case events.Warned():
                self.warnings.append(event.message)
            case events.Steered():
                self.steered.append(event)
                if event.refused is None and event.best is not None:
                    self.best_index, self.front = event.best, event.front
            case events.Sealed():
                self.sealed = event
            case events.TiesCompared():
                self.ties = event
                self.budget_used = max(self.budget_used, event.metric_calls)
            case events.Tested():
                self.tested[event.index] = event
            case events.Finalized():
                self.finalized = event
            case events.Finished():
                self.finished = event
                self.waiting = None
                self.mutating = {}
                self.in_flight = 0
                self.budget_used = max(self.budget_used, event.metric_calls)

    @property
    def reflecting(self) -> list[events.ProposalBegun]:
        """The proposals whose new texts are awaited."""
        return [] if self.finished is not None else self.proposals.awaited

    @property
    def races(self) -> events.LostRaces:
        """The races that proposals lost."""
        return events.LostRaces.of([event.race for event in self.rejected if event.race is not None])

    @property
    def cuts(self) -> events.RecordCuts:
        """The prompts whose records were cut."""
        return events.RecordCuts.of(self.cut_records)

    @property
    def unusable(self) -> events.UnusableAnswers:
        """The answers that were not used."""
        return events.UnusableAnswers.of(self.unusable_answers)

    @property
    def seed(self) -> events.CandidateFound | None:
        """The seed, once it has been scored."""
        return self.candidates[0] if self.candidates else None

    @property
    def best(self) -> events.CandidateFound | None:
        """The best candidate so far: by mean validation score, or by the comparison on fresh rows."""
        if not self.candidates:
            return None
        return self.candidates[self.best_index if self.ties is None else self.ties.best]

    @property
    def training_only(self) -> bool:
        """Whether the run has no validation rows, so that its candidates are chosen by scores on the training rows."""
        return self.started is not None and self.started.training_only

    @property
    def selection(self) -> str:
        """`validation`, or `training` without validation rows: the rows whose scores choose the best candidate."""
        return selection_name(training_only=self.training_only)

    @property
    def metric_calls(self) -> int:
        """Examples evaluated: GEPA's count, or ours while a batch it has not counted yet is under way; no test rows."""
        counted = self.finished is not None or self.phase in ("ties", "testing", "finalizing")
        return self.budget_used if counted else max(self.budget_used, self.evaluated)

    @property
    def active_seconds(self) -> float:
        """Seconds that processes have driven the run; those of this one alone until the run has ended."""
        known = self.finished.active_seconds if self.finished is not None else None
        return self.seconds if known is None else known

    @property
    def budget(self) -> int | None:
        """The limit of metric calls, where the run has one."""
        limits = [event.max_metric_calls for event in self.steered if event.max_metric_calls is not None]
        return limits[-1] if limits else self.started.max_metric_calls if self.started else None

    @property
    def language(self) -> str | None:
        """The language of the program's server, such as `typescript`; None before the run has started."""
        return self.started.language if self.started is not None else None

    @property
    def steered_kinds(self) -> list[str]:
        """The kinds of the requests that the run took, in order, without those that stopped it."""
        return [event.action for event in self.steered if event.refused is None]

    @property
    def refused_calls(self) -> int:
        """Calls that a gateway refused: by its totals, or by the events if those are newer."""
        known = self.model_calls.refused if self.model_calls is not None else 0
        return max(known, sum(refusal.times for refusal in self.refusals))

    def rate(self) -> float | None:
        """Examples per second over the last half minute, until now; None before two readings."""
        if len(self._pace) < 2:
            return None
        (first_s, first_n), (last_s, last_n) = self._pace[0], self._pace[-1]
        if last_s <= self.seconds - RATE_WINDOW_S:
            return 0.0
        return (last_n - first_n) / (self.seconds - first_s) if self.seconds > first_s else None

    def seconds_left(self) -> float | None:
        """Return the seconds left of the budget at the present rate."""
        rate = self.rate()
        if self.budget is None or not rate or self.phase != "optimizing" or self.finished is not None:
            return None
        return max(0, self.budget - self.metric_calls) / rate

    def figures(self) -> dict[str, Any]:
        """Return what a list of runs shows of this one, by the names of its counters in the store, once it is known."""
        known = {
            "iteration": self.iteration,
            "metric_calls": self.budget_used,
            "candidates": len(self.candidates),
            "steered": sum(event.refused is None for event in self.steered),
        }
        scores = self.searched()
        found = {name: figure for name, figure in known.items() if figure}
        return found if scores is None else found | {"seed_score": scores[0]}

    def ending(self) -> dict[str, Any]:
        """Return the figures of a run that has ended, as the last line of `--json` has them."""
        headline, best, calls = self.headline(), self.best, self.model_calls
        return {
            "rows": headline.rows if headline is not None else None,
            "seed_score": headline.seed if headline is not None else None,
            "best_score": headline.best if headline is not None else None,
            "metric_calls": self.metric_calls,
            "verdict": self.certificate.verdict if self.certificate is not None else None,
            "raced_out": self.races.lost,
            "saved_calls": self.races.saved,
            "best_code": code_label(best.texts) if best is not None else None,
            "model_calls": calls.total.model_dump(mode="json") if calls is not None else None,
            "refused": self.refused_calls,
            "failed_examples": self.failed_examples.failed if self.failed_examples is not None else 0,
            "retried_examples": self.retried.examples if self.retried is not None else 0,
            "steered": len(self.steered_kinds),
            "unusable_answers": self.unusable.model_dump(mode="json"),
            "copied_examples": self.copied.count if self.copied is not None else 0,
            "spent_usd": self.spent_usd,
            "active_seconds": round(self.active_seconds, 3),
        }

    def as_json(self) -> dict[str, Any]:
        """Return what is known besides candidates and proposals, as `show --json` has it."""
        beyond = {"event", "seconds", "at"}

        def stated(event: BaseModel | None) -> dict[str, Any] | None:
            return None if event is None else event.model_dump(mode="json", exclude=beyond)

        by_model = self.model_calls.by_model if self.model_calls is not None else {}
        return {
            "best_index": self.best.index if self.best is not None else None,
            "ties": None if self.ties is None else self.ties.model_dump(include=set(TieDecision.model_fields)),
            "model_calls": {name: tally.model_dump(mode="json") for name, tally in by_model.items()},
            "hosts": {name: asdict(totals) for name, totals in self.hosts.items()},
            "races": self.races.model_dump(),
            "records_cut": self.cuts.model_dump(),
            "unusable_answers": self.unusable.model_dump(),
            "failed_examples": stated(self.failed_examples),
            "retried_examples": stated(self.retried),
            "copied_examples": stated(self.copied),
            "refused": [event.model_dump(mode="json", exclude=beyond) for event in self.refusals],
        }

    def searched(self) -> tuple[float, float] | None:
        """Return the scores of seed and best by which the search, or the comparison after it, chose the best."""
        if self.seed is None or self.best is None:
            return None
        whole = self.whole_validation()
        return (self.seed.score, self.best.score) if whole is None else (whole.seed, whole.best)

    def whole_validation(self) -> Headline | None:
        """Return the scores of seed and best over the sample and the rows of the comparison; None without one."""
        return None if self.ties is None else Headline.of_comparison(self.ties)

    def headline(self) -> Headline | None:
        """Over the test rows where seed and best were scored there, else over those of `selection`; None before any."""
        if self.seed is None or self.best is None:
            return None
        seed, best = self.tested.get(0), self.tested.get(self.best.index)
        if seed is not None and best is not None:
            return Headline(f"{seed.rows} test rows", seed.score, best.score, of_test=True)
        if (whole := self.whole_validation()) is not None:
            return whole
        rows = (self.started.sampled or self.started.splits.get("val")) if self.started else None
        named = f"{rows} {self.selection} rows" if rows else f"the {self.selection} rows"
        return Headline(named, self.seed.score, self.best.score, of_test=False)
