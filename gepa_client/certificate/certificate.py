"""The certificate of a run: whether it improved the program, with every number that the statement rests on."""

from statistics import fmean
from typing import Literal

from evolverpc_common.display_text import counted
from gepa_client.analysis.best_score_estimate import Shrunk, shrink
from gepa_client.analysis.paired_comparison import PairedComparison
from gepa_client.certificate.certificate_inputs import (
    ByHand,
    CertificatePart,
    Evidence,
    NoiseFound,
    UsedBudget,
    read_evidence,
)
from gepa_client.certificate.leaks import Leaks, find_leaks
from gepa_client.certificate.verdict import Verdict, allowed_error, judge
from gepa_client.errors import NoCertificate
from gepa_client.evolution.names import component_texts
from gepa_client.journal.entries import CandidateRecord, StoredRun
from gepa_client.journal.history import by_unit
from gepa_client.journal.requests import digest_of
from gepa_client.journal.store import Store
from gepa_client.settings.run_config import RunConfig, score_range_of
from gepa_client.settings.run_settings import (
    BudgetSettings,
    CodeSettings,
    DatasetSettings,
    ReflectionSettings,
    SearchSettings,
)

FORMAT_VERSION: Literal[3] = 3


_GROUPS = (DatasetSettings, BudgetSettings, ReflectionSettings, SearchSettings, CodeSettings)

_LEFT_OUT = frozenset({"reflection_lm_kwargs"})
"""Arguments that an import cuts; the fingerprint has those of them that matter."""

COVERED = tuple(sorted({"example_timeout_s", *(name for group in _GROUPS for name in group.model_fields)} - _LEFT_OUT))
"""The settings that the digest of a run's settings covers."""


class SealedTest(CertificatePart):
    """Seed and best candidate on the sealed test rows; `seed` and `best` are means of the units' mean scores.

    `units`: rows that differ; those that are equal, apart from white space and the order of keys, count as one.
    `repeats`: how often each row was scored with each of the two. `opened`: candidates other than the seed that the run
    has scored on these rows. `score_range`: the lowest and the highest score that there can be, on which the test
    rests: as declared, else from 0 to the perfect score.

    `low` to `high`: the interval of the mean difference of a unit at `confidence`, 1 less the `error` that the run may
    spend on this opening; `p_value`: two-sided, a difference if it is at most `error`.
    """

    rows: int
    units: int
    repeats: int
    repeats_reason: str
    opened: int
    seed: float
    best: float
    difference: float
    low: float
    high: float
    confidence: float
    p_value: float
    error: float
    method: str
    score_range: tuple[float, float]


class Validation(CertificatePart):
    """Mean scores on the validation rows. `best` is too high: the candidate was chosen among `compared` by this score.

    `complete`: those of them that have a score on every row; the others were dropped before. `estimate`: without the
    luck of the choice among the complete ones, with the 95 % interval `low` to `high`; None with a single row.
    `left`: validation rows that the search left out, on which the best candidate and the seed were scored after it;
    `left_seed`: the seed's mean on them. `estimate` then follows from these rows. None if there are fewer than two.
    """

    rows: int
    compared: int
    complete: int
    seed: float
    best: float
    estimate: float | None
    low: float | None
    high: float | None
    left: int | None
    left_seed: float | None


class Digests(CertificatePart):
    """Digests of all that the numbers rest on. `test_rows`: the commitment, made before the first iteration.

    `settings`: of the settings and of the fingerprint of the run. `entries`, `attempts`: of the whole journal.
    """

    seed: str
    best: str
    test_rows: str
    train_rows: str
    val_rows: str
    settings: str
    entries: str
    attempts: str
    candidates: str


class Certificate(CertificatePart):
    """Whether a run improved the program. Every member follows from the record of the run and from nothing else.

    `program`: the name, version and digest that the server declares. `candidate`: the best one's index, 0 if it is the
    seed. `noise`: None if no evaluation was repeated. `by_hand`: None if no user steered the run.
    """

    format: Literal["evolverpc-certificate"] = "evolverpc-certificate"
    version: Literal[3] = FORMAT_VERSION
    verdict: Verdict
    statement: str
    run: str
    program: dict[str, str | None]
    candidate: int
    test: SealedTest
    validation: Validation
    noise: NoiseFound | None
    budget: UsedBudget
    by_hand: ByHand | None
    leaks: Leaks
    digests: Digests


def shortfall(required: Verdict | None, verdict: str, leaks: Leaks) -> str | None:
    """Return why a certificate with this verdict and these leaks is not what is `required`; None if it is."""
    if required is None or (verdict == required and not leaks.any):
        return None
    if verdict != required:
        return f"the verdict is {verdict}, and {required} is required"
    return (
        f"the verdict is {verdict}, but leaks weaken it, so it is not what is required: give test rows that are "
        "neither training nor validation rows, and whose texts the candidate does not contain"
    )


def certify(store: Store, run: StoredRun) -> Certificate:
    """Derive the certificate of a run from its record.

    Raises:
        NoCertificate: the run has no complete test, or its record contradicts itself.
    """
    found = read_evidence(store, run)
    if found.faults:
        raise NoCertificate("the record contradicts itself: " + "; ".join(found.faults))
    best, seed = found.best, found.candidates[0]
    score_range = _range(found)
    before, after = (by_unit(found.rows["test"], scores) for scores in found.test)
    verdict, compared = _compare(found, before, after, score_range)
    test = SealedTest(
        rows=len(found.test[0]),
        units=len(before),
        repeats=found.plan.count,
        repeats_reason=found.plan.reason,
        opened=found.opened,
        seed=fmean(map(fmean, before)),
        best=fmean(map(fmean, after)),
        difference=compared.difference,
        low=compared.low,
        high=compared.high,
        confidence=compared.confidence,
        p_value=compared.p_value,
        error=allowed_error(found.opened),
        method=compared.method,
        score_range=score_range,
    )
    leaks = find_leaks(component_texts(best.texts), component_texts(seed.texts), found.rows)
    return Certificate(
        verdict=verdict,
        statement=_statement(verdict, best, test) + caveats(found.by_hand, leaks, test),
        run=run.id,
        program={name: found.program.get(name) for name in ("name", "version", "digest")},
        candidate=best.index,
        test=test,
        validation=_validation(found, score_range),
        noise=found.noise,
        budget=found.budget,
        by_hand=found.by_hand,
        leaks=leaks,
        digests=Digests(
            seed=digest_of(seed.texts),
            best=digest_of(best.texts),
            test_rows=found.commitment.digest,
            settings=_settings_digest(run),
            **found.digests,
        ),
    )


def _range(found: Evidence) -> tuple[float, float]:
    """Return the range of scores that the run declares.

    Raises:
        NoCertificate: a recorded score is outside of it.
    """
    lowest, highest = score_range_of(found.run.config)
    least, most = found.seen
    if lowest <= least and most <= highest and lowest < highest:
        return lowest, highest
    example = f"`score_range` {min(least, lowest):g},{max(most, highest, least + 1):g}"
    raise NoCertificate(
        f"scores from {least:g} to {most:g} are recorded, but a certificate rests on the range that scores can have, "
        f"here {lowest:g} to {highest:g}: declare the lowest and the highest score that there can be, such as "
        f"{example}; `evolverpc resume` takes it too and evaluates nothing again"
    )


def _compare(
    found: Evidence, seed: list[list[float]], best: list[list[float]], score_range: tuple[float, float]
) -> tuple[Verdict, PairedComparison]:
    """Compare seed and best by their scores of each unit, within the error of this opening.

    Raises:
        NoCertificate: there is a single unit.
    """
    if len(seed) < 2:
        rows = len(found.test[0])
        which = "a single test row" if rows == 1 else f"{rows:,} test rows that are all equal"
        raise NoCertificate(f"{which} cannot show a difference: give more to the next run")
    if found.best.index == 0:
        confidence = 1 - allowed_error(found.opened)
        same = PairedComparison(len(seed), 0.0, 0.0, 0.0, confidence, 1.0, "none: the best candidate is the seed")
        return "no difference", same
    return judge(seed, best, score_range, found.opened)


def _statement(verdict: Verdict, best: CandidateRecord, test: SealedTest) -> str:
    rows = counted(test.rows, "sealed test row")
    if test.units < test.rows:
        rows += f" that count as {test.units:,}, since equal rows count once,"
    if best.index == 0:
        return f"no difference: no candidate is better than the seed, which scores {test.seed:.4g} on {rows}"
    result = verdict if verdict != "no difference" else "no difference that these rows can show"
    times = (
        ""
        if test.opened == 1
        else f"; {test.opened} candidates were scored on these rows, so {100 * test.error:.2g} % error is allowed here"
    )
    return (
        f"{result}: on {rows} the seed scores {test.seed:.4g} and candidate {best.index} scores {test.best:.4g} "
        f"(difference {test.difference:+.4g}, {100 * test.confidence:.4g} % interval {test.low:+.3g} to "
        f"{test.high:+.3g}, p {'below 0.001' if test.p_value < 0.001 else f'= {test.p_value:.3f}'}{times})"
    )


def caveats(by_hand: ByHand | None, leaks: Leaks, test: SealedTest) -> str:
    """Return what a reader of the verdict must know besides; empty if nothing."""
    return _steered(by_hand) + _leaking(leaks, test)


def _steered(by_hand: ByHand | None) -> str:
    """Return what the statement adds about a run that was steered."""
    if by_hand is None:
        return ""
    whose = ", and the best candidate has or descends from a text by hand" if by_hand.best_has_them else ""
    return f"; the run was steered by {counted(by_hand.requests, 'request')} of users{whose}"


def _leaking(leaks: Leaks, test: SealedTest) -> str:
    """Return what the statement adds about leaks, which weaken it."""
    found = [f"the best candidate contains texts of {counted(leaks.rows, 'validation or test row')}"] * bool(leaks.rows)
    names = {"train": "training", "val": "validation"}
    found += [
        f"{shared:,} of {counted(test.rows, 'test row')} are {names[split]} rows too"
        for split, shared in leaks.shared.items()
        if shared
    ]
    return f"; this is weakened by leaks: {', and '.join(found)}" if found else ""


def _validation(found: Evidence, score_range: tuple[float, float]) -> Validation:
    best = found.best
    rows = sorted(best.scores, key=int)
    whole = [kept for kept in found.candidates if kept.scores.keys() == best.scores.keys()]
    shrunk: Shrunk | None = None
    left = found.left_scores.get(best.index, [])
    left_seed = found.left_scores.get(0)
    if len(left) > 1:  # the search did not choose by these scores; with `tie_rows` they choose among those that tie
        compared = [index for index in found.left_scores if index] if best.index else [0]
        shrunk = shrink([found.left_scores[index] for index in compared], compared.index(best.index))
    elif len(rows) > 1:
        shrunk = shrink([[kept.scores[row] for row in rows] for kept in whole], whole.index(best))
    return Validation(
        rows=len(rows),
        compared=len(whole) + found.raced_out,
        complete=len(whole),
        seed=fmean(found.candidates[0].scores.values()),
        best=fmean(best.scores.values()),
        estimate=None if shrunk is None else shrunk.estimate,
        low=None if shrunk is None else max(shrunk.low, score_range[0]),
        high=None if shrunk is None else min(shrunk.high, score_range[1]),
        left=len(left) if len(left) > 1 else None,
        left_seed=fmean(left_seed) if left_seed is not None and len(left) > 1 else None,
    )


def _settings_digest(run: StoredRun) -> str:
    """Return a digest of the fingerprint and of those settings in `COVERED` that differ from their defaults.

    Settings that name servers, credentials, sandboxes and files of results are not among them.
    """
    defaults = RunConfig.model_construct().model_dump(mode="json")
    covered = {name: run.config[name] for name in COVERED if name in run.config}
    given = {name: value for name, value in covered.items() if value != defaults[name]}
    return digest_of([run.identity, given])
