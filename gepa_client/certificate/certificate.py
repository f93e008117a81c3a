"""The certificate of a run: whether it improved the program, with every number that this rests on; and its check.

It is checked by deriving every number again, from the record of the run alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from statistics import fmean
from typing import Any, Literal

import orjson

from evolverpc_common.display_text import counted
from gepa_client.analysis.best_score_estimate import Shrunk, shrink
from gepa_client.analysis.paired_comparison import PairedComparison
from gepa_client.analysis.ties import best_candidate
from gepa_client.certificate.evidence import (
    ByHand,
    CertificatePart,
    NoiseFound,
    RecordedEntries,
    UsedBudget,
    WrongComparison,
    budget_used,
    changed_rows,
    reason_against,
)
from gepa_client.certificate.leaks import Leaks, find_leaks
from gepa_client.certificate.sealed_test import commitment_of
from gepa_client.certificate.verdict import Verdict, allowed_error, judge
from gepa_client.errors import NoCertificate
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal.entries import COMMITMENT, SEARCH, START, CandidateRecord, StoredRun
from gepa_client.journal.history import DISCOVERY, TEST, TRAIN, VAL, by_unit, entries, sealed_rows, selection_rows
from gepa_client.journal.requests import digest_of
from gepa_client.journal.soundness import damage
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.settings.run_config import RunConfig, score_range_of
from gepa_client.settings.run_settings import (
    BudgetSettings,
    CodeSettings,
    DatasetSettings,
    ReflectionSettings,
    SearchSettings,
)

FORMAT_VERSION: Literal[4] = 4


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


class Certificate(CertificatePart):
    """Whether a run improved the program. Every member follows from the record of the run and from nothing else.

    `program`: the name, version and digest that the server declares. `candidate`: the best one's index, 0 if it is the
    seed. `noise`: None if no evaluation was repeated. `by_hand`: None if no user steered the run.
    """

    format: Literal["evolverpc-certificate"] = "evolverpc-certificate"
    version: Literal[4] = FORMAT_VERSION
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
    candidates, sealed = store.candidates(run.id), sealed_rows(store, run.id)
    best = best_candidate(store, run.id, candidates)
    if (reason := reason_against(run, best, sealed)) is not None:
        raise NoCertificate(reason)
    assert best is not None  # noqa: S101 - else there is a reason
    record = RecordedEntries(store, run)
    if record.commitment is None:
        raise NoCertificate("the run began with a version that did not commit to its test rows: start a new run")
    seed, plan, faults = candidates[0], record.plan(best.index), list[str]()
    before, after = (by_unit(sealed, record.scores(kept, sealed, plan.count, faults)) for kept in (seed, best))
    start = {entry.number: orjson.loads(entry.answer) for entry in entries(store, run.id, START)}
    if commitment_of(start[TEST], record.commitment.held) != record.commitment:
        faults.append(changed_rows(start[TEST], record.commitment))
    program = start[DISCOVERY]["program"]
    if program["seed_candidate"] != seed.texts:
        faults.append("candidate 0 does not have the seed's texts")
    selected = selection_rows(store, run.id)
    faults += record.scores_without_result(candidates, selected.get("val", selected["train"]))
    left_scores: Mapping[int, Sequence[float]] = {}
    try:
        left_scores = record.compared(candidates, selected["train"], selected.get("val", []))
    except WrongComparison as wrong:
        faults.append(str(wrong))
    if faults:
        raise NoCertificate("the record contradicts itself: " + "; ".join(faults))
    score_range, opened = _range(run, record.seen), max(1, len(record.tested - {0}))
    verdict, compared = _compare(best, before, after, score_range, rows=len(sealed), opened=opened)
    test = SealedTest(
        rows=len(sealed),
        units=len(before),
        repeats=plan.count,
        repeats_reason=plan.reason,
        opened=opened,
        seed=fmean(map(fmean, before)),
        best=fmean(map(fmean, after)),
        difference=compared.difference,
        low=compared.low,
        high=compared.high,
        confidence=compared.confidence,
        p_value=compared.p_value,
        error=allowed_error(opened),
        method=compared.method,
        score_range=score_range,
    )
    by_hand, noise = record.by_hand(candidates, best), record.noise()
    budget, attempts = budget_used(store, run.id, record)
    leaks = find_leaks(component_texts(best.texts), component_texts(seed.texts), {**selected, "test": sealed})
    return Certificate(
        verdict=verdict,
        statement=_statement(verdict, best, test) + caveats(by_hand, leaks, test),
        run=run.id,
        program={name: program.get(name) for name in ("name", "version", "digest")},
        candidate=best.index,
        test=test,
        validation=_validation(candidates, best, record.raced_out, left_scores, score_range),
        noise=None if noise is None else NoiseFound(rows=noise.rows, within=noise.within, between=noise.between),
        budget=budget,
        by_hand=by_hand,
        leaks=leaks,
        digests=Digests(
            seed=digest_of(seed.texts),
            best=digest_of(best.texts),
            test_rows=record.commitment.digest,
            train_rows=digest_of(start[TRAIN]),
            val_rows=digest_of(start[VAL]),
            settings=_settings_digest(run),
            entries=record.digest,
            attempts=attempts,
        ),
    )


def _range(run: StoredRun, seen: Set[float]) -> tuple[float, float]:
    """Return the range of scores that the run declares; `seen`: the scores of the record.

    Raises:
        NoCertificate: a recorded score is outside of it.
    """
    lowest, highest = score_range_of(run.config)
    least, most = min(seen), max(seen)
    if lowest <= least and most <= highest and lowest < highest:
        return lowest, highest
    example = f"`score_range` {min(least, lowest):g},{max(most, highest, least + 1):g}"
    raise NoCertificate(
        f"scores from {least:g} to {most:g} are recorded, but a certificate rests on the range that scores can have, "
        f"here {lowest:g} to {highest:g}: declare the lowest and the highest score that there can be, such as "
        f"{example}; `evolverpc resume` takes it too and evaluates nothing again"
    )


def _compare(
    best: CandidateRecord,
    before: list[list[float]],
    after: list[list[float]],
    score_range: tuple[float, float],
    *,
    rows: int,
    opened: int,
) -> tuple[Verdict, PairedComparison]:
    """Compare seed and best by their scores of each unit, within the error of this opening. `rows`: the test rows.

    Raises:
        NoCertificate: there is a single unit.
    """
    if len(before) < 2:
        which = "a single test row" if rows == 1 else f"{rows:,} test rows that are all equal"
        raise NoCertificate(f"{which} cannot show a difference: give more to the next run")
    if best.index == 0:
        confidence = 1 - allowed_error(opened)
        same = PairedComparison(len(before), 0.0, 0.0, 0.0, confidence, 1.0, "none: the best candidate is the seed")
        return "no difference", same
    return judge(before, after, score_range, opened)


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


def _validation(
    candidates: Sequence[CandidateRecord],
    best: CandidateRecord,
    raced_out: int,
    left_scores: Mapping[int, Sequence[float]],
    score_range: tuple[float, float],
) -> Validation:
    """Return the mean scores on the validation rows; `left_scores`: as of `RecordedEntries.compared`."""
    rows = sorted(best.scores, key=int)
    whole = [kept for kept in candidates if kept.scores.keys() == best.scores.keys()]
    shrunk: Shrunk | None = None
    left = left_scores.get(best.index, [])
    left_seed = left_scores.get(0)
    if len(left) > 1:  # the search did not choose by these scores; with `tie_rows` they choose among those that tie
        compared = [index for index in left_scores if index] if best.index else [0]
        shrunk = shrink([left_scores[index] for index in compared], compared.index(best.index))
    elif len(rows) > 1:
        shrunk = shrink([[kept.scores[row] for row in rows] for kept in whole], whole.index(best))
    return Validation(
        rows=len(rows),
        compared=len(whole) + raced_out,
        complete=len(whole),
        seed=fmean(candidates[0].scores.values()),
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


SHOWN = 60
"""Characters of a value that are shown."""


def mismatches(store: Store, run: StoredRun, claimed: dict[str, Any]) -> list[str]:
    """Return a line for each fault of a certificate; none if all of it follows from the record of the run.

    `claimed`: the certificate, as JSON.

    Raises: what the store raises.
    """
    found = damage(store, run.id)
    if found is not None:
        return [f"the journal of run {run.id} is damaged: {found}"]
    if not _committed_first(store, run.id):
        return ["the journal committed to the test rows after the search had begun"]
    try:
        derived = certify(store, run)
    except NoCertificate as error:
        return [f"the record of run {run.id} supports no certificate: {error}"]
    return differences(claimed, derived)


def differences(claimed: dict[str, Any], derived: Certificate) -> list[str]:
    """Return a line such as `test.rows: 60, but the record gives 59` for each member that differs."""
    wrong, right = dict(leaves(claimed)), dict(leaves(derived.model_dump(mode="json")))
    return [
        f"{'.'.join(place)}: {_shown(wrong.get(place))}, but the record gives {_shown(right.get(place))}"
        for place in {**right, **wrong}
        if wrong.get(place) != right.get(place)
    ]


def leaves(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place and the JSON of every value in a JSON value that is no object or list, or is an empty one.

    Whole numbers have no fraction, as other writers of JSON have it: 1.0 is 1.
    """
    if isinstance(value, dict | list) and value:
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in named:
            yield from leaves(part, (*place, str(name)))
    else:
        yield place, json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def _shown(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}..."


def _committed_first(store: Store, run_id: str) -> bool:
    """Whether no entry of the search stands before the commitment in the order of its writer."""
    sealed = store.seals(run_id, COMMITMENT, 0, 1)
    if not sealed:
        return True  # no certificate then, for another reason
    start = 0
    while page := store.seals(run_id, SEARCH, start, PAGE):
        if any(one.owner == sealed[0].owner and (one.seq or 0) < (sealed[0].seq or 0) for one in page):
            return False
        start = page[-1].number + 1
    return True
