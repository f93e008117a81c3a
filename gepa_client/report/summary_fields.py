"""What reports and terminal share: a run's story and facts, failures, model calls."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from evolverpc_common.display_text import counted, line, money, plain
from gepa_client.analysis.explanation import Change, Explanation, MovedRows, PairedScores
from gepa_client.analysis.proposals import AnalyzedProposal, ComparedRow, Excerpt
from gepa_client.certificate.certificate import NoiseFound
from gepa_client.certificate.leaks import Leaks
from gepa_client.evolution.names import code_label
from gepa_client.journal.history import selection_name
from gepa_client.journal.run_events import (
    CallRefused,
    FailedExamples,
    FailureGroup,
    LostRaces,
    ModelTally,
    Mutated,
    RecordCuts,
    RetriedExamples,
    Started,
    TiesCompared,
)
from gepa_client.report.proposed_texts import copied_summary, unusable_summary
from gepa_client.report.steering_fields import steered_kinds, steered_summary
from gepa_client.run.output_folder import HostTotals
from gepa_client.run.run_view import RunView
from gepa_client.settings.run_config import RunConfig

ENDED_SHOWN = 4000
"""Characters of why a run ended."""

LONGEST_FAILURE = 20_000

FAILURES_NAMED = 10
"""Rows and candidates of a group that are named."""

LEAKS_SHOWN = 5
"""Rows found in the best candidate that are named."""

SIGNIFICANT = 0.05
"""The probability of chance below which a difference counts as unlikely to be chance."""

HOST_COLUMNS = ("host", "connections", "failed", "refused", "bytes sent", "received")

CUTS_SHOWN = 50
"""Prompts with cut records that are listed."""

CUT_COLUMNS = ("prompt", "records", "shortened", "left out", "tokens left out")

MODEL_CALL_COLUMNS = ("model", "calls", "failed", "tokens in", "tokens out", "cost")

_HOST = re.compile(r"\S+:\d+")
"""A refused connection; other refusals name a model or a path."""


def story(view: RunView, explained: Explanation | None) -> list[str]:
    """Return what happened in a few sentences of plain text: the scores, the end, and how certain the difference is."""
    headline, best = view.headline(), view.best
    sentences = []
    if headline is None or best is None:
        sentences.append("The run ended before the seed was scored.")
    elif best.index == 0:
        sentences.append(f"No candidate is better than the seed, which scores {headline.seed:.4g} on {headline.rows}.")
    else:
        sentences.append(
            f"On {headline.rows} the seed scores {headline.seed:.4g} and the best candidate ({best.index}) "
            f"{headline.best:.4g}."
        )
        if headline.of_test and view.seed is not None:
            if (compared := view.whole_validation()) is None:
                others = f"the {view.selection} scores, by which the search chose it,"
                before, after = view.seed.score, best.score
            else:
                others = f"those on {compared.rows}, on which it was compared with the seed after the search,"
                before, after = compared.seed, compared.best
            sentences.append(f"These are test scores; {others} are {before:.4g} and {after:.4g}.")
    sentences.append(_ending(view))
    if explained is not None:
        proposer = "Reflection" if is_by_model(view) else "The program"
        by_hand = "propose" in steered_kinds(view)
        makers = f"{proposer} and users" if by_hand else proposer
        made = f"{makers} made {counted(explained.proposed, 'proposal')}, of which {explained.kept} "
        made += "was kept." if explained.kept == 1 else "were kept."
        sentences += [made, *([] if view.certificate is not None else _certainty(explained, view))]
    if view.certificate is not None:
        weakened = ", weakened by leaks" if view.certificate.leaks.any else ""
        sentences.append(f"Verdict of the certificate: {view.certificate.verdict}{weakened}.")
    return sentences


def certificate_facts(view: RunView) -> list[tuple[str, str]]:
    """Return what the certificate states, as label and plain text, or why there is none; nothing before the end."""
    found = view.certificate
    if found is None:
        return [("no certificate", view.no_certificate)] if view.no_certificate is not None else []
    test, validation, noise, budget = found.test, found.validation, found.noise, found.budget
    times = "once" if test.repeats == 1 else f"{test.repeats} times"
    chosen = f"{validation.seed:.4g} -> {validation.best:.4g} on {counted(validation.rows, 'row')}"
    if validation.estimate is not None:
        if validation.left is None:
            luck = f"without the luck of being chosen among {counted(validation.complete, 'candidate')}, about "
        else:
            luck = f"on {validation.left} validation rows that the search left out: "
            luck += "" if validation.left_seed is None else f"{validation.left_seed:.4g} -> "
        interval = f"95 % interval {validation.low:.4g} to {validation.high:.4g}"
        chosen += f"; {luck}{validation.estimate:.4g} ({interval})"
    if dropped := validation.compared - validation.complete:
        chosen += (
            f"; {counted(dropped, 'proposal')} more {'was' if dropped == 1 else 'were'} compared and dropped in races"
        )
    return [
        ("verdict", found.statement),
        (
            "test",
            f"each of {counted(test.rows, 'row')} was scored {times}: {test.repeats_reason}; for scores from "
            f"{test.score_range[0]:g} to {test.score_range[1]:g}: {test.method}",
        ),
        (view.selection, chosen),
        ("noise", "not known" if noise is None else noise_summary(noise)),
        ("took", f"{budget.evaluations:,} results of the search and {budget.test_evaluations:,} of the test"),
        ("copied rows", leak_summary(found.leaks)),
        ("committed to", found.digests.test_rows),
    ]


def perfect_score(view: RunView) -> float:
    """Return the highest score, as far as the settings state it."""
    return setting_of(view, "perfect_score", 1.0)


def noise_summary(noise: NoiseFound) -> str:
    """Return the standard deviations of scores."""
    return (
        f"{counted(noise.rows, 'evaluation')} were repeated: standard deviation {math.sqrt(noise.within):.3g} of one "
        f"row again, {math.sqrt(noise.between):.3g} between rows"
    )


def leak_summary(leaks: Leaks) -> str:
    """Return which validation and test rows have texts in the best candidate."""
    searched = " and ".join(f"{count:,} {split}" for split, count in leaks.searched.items())
    if not leaks.rows:
        return f"the best candidate contains no text of {searched} rows"
    first = ", ".join(
        f"{leak.split} {leak.row} in {leak.component}, line {leak.line:,} ({counted(leak.words, 'word')}"
        f"{'' if leak.verbatim else ', nearly'}{', with its answer' if leak.answer else ''})"
        for leak in leaks.listed[:LEAKS_SHOWN]
    )
    more = ", ..." if leaks.rows > LEAKS_SHOWN else ""
    return line(f"the best candidate contains texts of {counted(leaks.rows, 'row')} (of {searched}): {first}{more}")


def _ending(view: RunView) -> str:
    budget = f" of {view.budget:,}" if view.budget is not None else ""
    used = f"after {view.metric_calls:,}{budget} metric calls and {view.active_seconds:.1f} s"
    finished = view.finished
    if finished is None:
        return f"It has not ended {used}."
    reason = f": {line(finished.reason, ENDED_SHOWN).rstrip('.')}" if finished.reason else ""
    return f"It {'paused' if finished.status == 'paused' else 'ended'} {used} ({finished.status}{reason})."


def _certainty(explained: Explanation, view: RunView) -> list[str]:
    """Return how far the difference between seed and best may be chance; nothing if there is no difference."""
    if explained.overall is None:
        return []
    of_search = "" if view.whole_validation() is None else " of the search"
    paired, rows = explained.overall.scores, f"the {view.selection} rows{of_search}"
    if explained.test is not None:
        paired, rows = explained.test, "the test rows"
    certain = "is unlikely to be chance" if paired.p < SIGNIFICANT else "may be chance"
    moved = (
        f"{moved_rows(paired)} with the best candidate: that {certain} (sign test over {rows}, "
        f"p {'below 0.001' if paired.p < 0.001 else f'= {paired.p:.3f}'})."
    )
    if explained.test is not None:
        return [moved]
    learnt = ", and it was made from their results" if view.training_only else ""
    lower = "so new rows may score lower; a test set shows by how much."
    return [
        moved,
        f"{rows.capitalize()} selected the candidate{learnt}, {lower}",
    ]


def moved_rows(paired: PairedScores) -> str:
    """`5 rows are better, 1 is worse and 6 are the same`."""
    same = paired.rows - paired.better - paired.worse
    better = f"{counted(paired.better, 'row')} {'is' if paired.better == 1 else 'are'} better"
    return f"{better}, {paired.worse} {'is' if paired.worse == 1 else 'are'} worse and {same} the same"


def step_title(change: Change) -> str:
    """`Candidate 3: 0.25 -> 0.5 on 40 validation rows`."""
    scores = f"{change.scores.before:.4g} -> {change.scores.after:.4g}"
    return f"Candidate {change.candidate}: {scores} on {selecting_rows(change)}"


def selecting_rows(change: Change) -> str:
    """Return `40 validation rows`, those of the search; `40 training rows` if these select the candidates."""
    return counted(change.scores.rows, f"{selection_name(training_only=change.training_only)} row")


def step_origin(change: Change) -> str:
    """Return where a candidate comes from, and when it was found, as a sentence."""
    came = " and ".join(map(_named, change.parents))
    merged = f", merged; compared with {_named(change.against)}" if len(change.parents) > 1 else ""
    return f"From {came}{merged}. Iteration {change.iteration:,}, after {change.metric_calls:,} metric calls."


def minibatch_summary(proposal: AnalyzedProposal) -> str:
    """Return how many rows a proposal was made from, and their scores, as sentences."""
    rows = f"It was made from the results of {counted(proposal.size, 'training row')}."
    sums = ""
    if proposal.before is not None and proposal.after is not None:
        sums = f" Their scores add up to {proposal.before:.4g} before the change and {proposal.after:.4g} after it."
    shown = f" The first {len(proposal.rows)} of them:" if proposal.size > len(proposal.rows) else ""
    return f"{rows}{sums}{shown}"


def row_title(row: ComparedRow) -> str:
    """`val 7: 0 -> 1`; a score that is not recorded is `?`."""
    before, after = (f"{one.score:.4g}" if one is not None else "?" for one in (row.before, row.after))
    return f"{row.split} {line(row.row, 100)}: {before} -> {after}"


def row_groups(change: Change) -> list[tuple[str, MovedRows]]:
    """Return the rows that a change made better, made worse, and left below the perfect score, by their names."""
    return [("Better", change.better), ("Worse", change.worse), ("The same, and not perfect", change.same)]


def _named(index: int) -> str:
    return f"candidate {index}" if index else "the seed"


def changed_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    defaults = RunConfig.model_construct().model_dump(mode="json")
    return {
        name: value
        for name, value in config.items()
        if value not in (None, [], ()) and not (name in defaults and defaults[name] == value)
    }


def summary_facts(view: RunView) -> list[tuple[str, str]]:
    """Return the main facts as label and plain text; the reason of the end may take several lines."""
    started, finished, best = view.started, view.finished, view.best
    headline, failed = view.headline(), view.failed_examples
    code = code_label(best.texts) if best is not None else None
    made = sum(isinstance(mutation, Mutated) for mutation in view.mutations)
    facts = {
        "program": _program(started) if started is not None else None,
        "test score": f"{headline.seed:.4g} -> {headline.best:.4g} ({headline.rows})"
        if headline is not None and headline.of_test
        else None,
        f"{view.selection} score": selection_score(view),
        "best code": line(code, 300) if code is not None else None,
        "metric calls": f"{view.metric_calls:,}{budget_note(view)}, {view.active_seconds:.1f} s"
        if started is not None
        else None,
        "results reused": reuse_summary(view),
        "candidates": f"{len(view.candidates)} with the seed, {len(view.front)} on the Pareto front, "
        f"{counted(len(view.rejected), 'proposal')} not kept, "
        f"{counted(len(view.skipped), 'iteration')} without a proposal, "
        f"{counted(len(view.failures), 'failed iteration')}"
        if started is not None
        else None,
        "steered": steered_summary(steered_kinds(view)),
        "raced out": race_summary(view.races),
        "compared": tie_summary(view.ties) if view.ties is not None else None,
        "failed examples": failure_summary(failed) if failed is not None else None,
        "retries": retry_summary(view.retried),
        "records cut": cut_summary(view.cuts) if view.cuts.prompts else None,
        "answers not used": unusable_summary(view.unusable),
        "copied examples": copied_summary(view.copied),
        "changes of code": f"{made} made, {len(view.mutations) - made} refused" if view.mutations else None,
        "model calls": model_call_summary(view),
        "refused": refusal_summary(view),
    }
    if started is not None:
        facts["rows"] = rows_summary(started.splits, training_only=started.training_only, sampled=started.sampled)
        facts["proposals by"] = line(started.proposer, 200)
    if finished is not None:
        costs = {
            "evaluation": finished.evaluation_usd,
            "reflection": finished.reflection_usd,
            "changes of code": finished.mutation_usd,
            "models that programs called": finished.model_usd,
        }
        facts["cost"] = ", ".join(f"{money(cost)} {what}" for what, cost in costs.items() if cost is not None) or None
        ended = finished.status if finished.reason is None else f"{finished.status}: {finished.reason}"
        facts["ended"] = plain(ended.strip(), limit=ENDED_SHOWN)
    return [(label, text) for label, text in facts.items() if text is not None]


def selection_score(view: RunView) -> str | None:
    """Return the scores of seed and best candidate on the rows that select candidates; None before any.

    If both were compared on further rows after a search on a sample, the scores on all of these rows come first.
    """
    seed, best = view.seed, view.best
    if seed is None or best is None:
        return None
    found = f"{seed.score:.4g} -> {best.score:.4g}"
    if (whole := view.whole_validation()) is not None:
        found = f"{whole.seed:.4g} -> {whole.best:.4g} on {whole.rows} ({found} on those of the search)"
    return f"{found}, candidate {best.index}"


def rows_summary(splits: Mapping[str, int], *, training_only: bool, sampled: int | None) -> str:
    """Return `40 train, 20 val`, or `40 train (no validation rows: they select the candidates too)`.

    `sampled`: on how many validation rows the search scores candidates; None if on all.
    """
    also = {"train": " (no validation rows: they select the candidates too)"} if training_only else {}
    if sampled is not None:
        also["val"] = f" (the search scores candidates on {sampled} of them)"
    named = [split for split in splits if not training_only or split != "val"]
    return ", ".join(f"{splits[split]} {split}{also.get(split, '')}" for split in named)


def reuse_summary(view: RunView) -> str | None:
    """Return how many results were reused; None if the program is not known to be deterministic."""
    reused = view.finished.reused if view.finished is not None else None
    return f"{reused:,}, not counted as metric calls" if reused is not None else None


def tie_summary(ties: TiesCompared) -> str:
    """Return which of the best candidates were compared, on how many fresh rows, and which is the best."""
    named = {each.index: f"candidate {each.index}" if each.index else "the seed" for each in ties.candidates}
    means = ", ".join(f"{named[each.index]} {each.mean:.4g}" for each in ties.candidates)
    found = f"means over {ties.validation_rows + ties.rows:,} rows: {means}; the best is {named[ties.best]}"
    fresh = ties.rows - ties.validation_left
    fewer = "" if fresh == ties.asked else f" of the {ties.asked:,} asked for, as no more are fresh"
    if not ties.validation_left:
        tied = f"{len(ties.candidates)} candidates tied on validation"
        return f"{tied} and were compared on {counted(fresh, 'fresh row')}{fewer}; {found}"
    left = f"{counted(ties.validation_left, 'validation row')} that the search left out"
    also = f" and on {counted(fresh, 'fresh training row')}{fewer}" if ties.asked else ""
    others = [each for each in ties.candidates if each.index]
    which = "the best candidate" if len(others) == 1 else f"the best {len(others)} candidates"
    which += " and the seed" if len(others) < len(ties.candidates) else ""
    return f"{which} were compared on {left}{also}; {found}"


def race_summary(races: LostRaces) -> str | None:
    """Return how many proposals lost their race, by how many scores, and the metric calls; None without any.

    A row that had begun when the decision fell is a metric call too, and one that was scored before is none.
    """
    if not races.lost:
        return None
    begun = races.calls - races.compared
    rest = f", and {begun:,} more had begun" if begun > 0 else f", {-begun:,} of them known before" if begun else ""
    scores = f"{counted(races.compared, 'score')} of rows ({races.compared / races.lost:.3g} each in the mean)"
    return f"{counted(races.lost, 'proposal')}, by {scores}{rest}: {races.calls:,} metric calls, {races.saved:,} saved"


def budget_note(view: RunView) -> str:
    """Return ` of 1,500`, with the reason if more was used; empty without a budget.

    GEPA checks the budget between iterations, and finishes what has begun.
    """
    budget, last = view.budget, view.candidates[-1] if view.candidates else None
    if budget is None:
        return ""
    if view.metric_calls <= budget:
        return f" of {budget:,}"
    if view.finished is None or not view.finished.search_complete:
        return f" of {budget:,} (an iteration that had begun counts too)"
    begun = "the last iteration"
    if last is not None and last.metric_calls > budget:
        begun = f"the evaluation of {'the seed' if last.index == 0 else f'candidate {last.index}'} on all rows"
    return f" of {budget:,} ({begun} had begun and was finished)"


def _program(started: Started) -> str:
    version = f", version {started.program_version}," if started.program_version else ""
    return line(f"{started.program}{version} behind {started.server}, {started.url}", 300)


def failure_summary(failed: FailedExamples) -> str:
    """`6 of 60 evaluations: 5 KeyError, 1 timeout`; texts as they are."""
    groups = ", ".join(f"{group.count:,} {failure_name(group)}" for group in failed.groups[:FAILURES_NAMED])
    return line(f"{failed.failed:,} of {failed.evaluated:,} evaluations: {groups}")


def retry_summary(retried: RetriedExamples | None) -> str | None:
    """`9 examples were tried again after 12 failures: api.openai.com 429 (10), refused (2)`; None without any."""
    if retried is None:
        return None
    hosts: dict[str | None, list[str]] = {}
    for group in retried.groups[:FAILURES_NAMED]:
        hosts.setdefault(group.host, []).append(f"{group.reason} ({group.failures:,})")
    named = "; ".join(f"{host + ' ' if host else ''}{', '.join(reasons)}" for host, reasons in hosts.items())
    more = ", ..." if len(retried.groups) > FAILURES_NAMED else ""
    were = "was" if retried.examples == 1 else "were"
    failures = counted(sum(group.failures for group in retried.groups), "failure")
    return line(f"{counted(retried.examples, 'example')} {were} tried again after {failures}: {named}{more}")


def failure_name(group: FailureGroup) -> str:
    """Return the exception's type, or `timeout`, with its type if it has another one."""
    if group.status == "program_error":
        return group.type
    return "timeout" if group.type.lower() in ("timeout", "timeouterror") else f"timeout ({group.type})"


def failure_places(group: FailureGroup, named: int = FAILURES_NAMED) -> str:
    """`5 examples; on 3 rows: val 1, val 4, train 1; by candidates: 0 (4 times), 2 (once)`."""
    rows = ", ".join(group.rows[:named]) + (", ..." if group.row_count > min(named, len(group.rows)) else "")
    times = [
        f"{candidate} ({'once' if count == 1 else f'{count:,} times'})" for candidate, count in group.candidates.items()
    ]
    by = ", ".join(times[:named]) + (", ..." if len(times) > named else "")
    return line(
        f"{counted(group.count, 'example')}; on {counted(group.row_count, 'row')}: {rows}; "
        f"by {'candidate' if len(times) == 1 else 'candidates'}: {by}",
        LONGEST_FAILURE,
    )


def failure_messages(group: FailureGroup) -> str | None:
    """Return `2 different messages: 'returns' (14 times), 'account' (12 times)`; None if all have the same one."""
    if group.message_count < 2:
        return None
    listed = ", ".join(
        f"{line(message, 160)} ({'once' if count == 1 else f'{count:,} times'})"
        for message, count in group.messages.items()
    )
    more = ", ..." if group.message_count > len(group.messages) else ""
    return line(f"{group.message_count:,} different messages: {listed}{more}", LONGEST_FAILURE)


def first_failure(group: FailureGroup, most: int | None = None) -> str:
    """Return the first failure: row, candidate and message, with its traceback and its log on further lines.

    `most`: lines of the traceback, and of the log, that are kept, from the end.
    """
    parts = [f"the first: row {group.row}, candidate {group.candidate}: {group.type}: {group.message}"]
    if group.traceback:
        parts += group.traceback.rstrip().splitlines()[-(most or 0) :]
    if group.log:
        parts += ["the program wrote:", *group.log.rstrip().splitlines()[-(most or 0) :]]
    return "\n".join(parts)


def cut_summary(cuts: RecordCuts) -> str:
    """Return how much of the records did not fit into prompts, in which iterations, and which setting to raise."""
    where = f"iteration {cuts.first:,}" if cuts.first == cuts.last else f"iterations {cuts.first:,} to {cuts.last:,}"
    return (
        f"in {counted(cuts.prompts, 'reflection prompt')} ({where}) {counted(cuts.shortened, 'record')} shortened and "
        f"{cuts.left_out:,} left out, about {cuts.tokens:,} tokens; to show more, raise {' or '.join(cuts.settings)}"
    )


def cut_rows(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each prompt whose records were cut, the first `CUTS_SHOWN` of them."""
    return [
        (
            line(f"iteration {cut.iteration:,}, {cut.component}", 200),
            *(f"{n:,}" for n in (cut.records, cut.shortened, cut.left_out, cut.tokens)),
        )
        for cut in view.cut_records[:CUTS_SHOWN]
    ]


def excerpt_text(value: Excerpt) -> str:
    """Return the text with the number of characters that are left out."""
    return f"{value.text}\n… {value.omitted:,} characters left out …" if value.omitted else value.text


def model_call_rows(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each model, the most expensive first, and their sum if there are several."""
    if view.model_calls is None:
        return []
    by_model = sorted(view.model_calls.by_model.items(), key=lambda named: (-named[1].cost_usd, named[0]))
    drawn = [_row(line(name, 200), tally) for name, tally in by_model]
    return [*drawn, _row("in all", view.model_calls.total)] if len(drawn) > 1 else drawn


def model_call_summary(view: RunView) -> str | None:
    """Return calls and cost in one line; None without calls."""
    if view.model_calls is None or not view.model_calls.total.calls:
        return None
    total = view.model_calls.total
    failed = f" ({total.failed:,} failed)" if total.failed else ""
    tokens = f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return f"{total.calls:,}{failed}, {tokens}, {money(total.cost_usd, total.unpriced)}"


def refusal_summary(view: RunView) -> str | None:
    """How much was refused; None where nothing was."""
    times = refusal_count(view)
    return f"{times:,} {'time' if times == 1 else 'times'}" if times else None


def refusal_count(view: RunView) -> int:
    """Return the number of refusals by the totals, or by the events if those are newer."""
    events = sum(refusal.times for refusal in view.refusals)
    return max(events, view.model_calls.refused if view.model_calls is not None else 0)


def refusal_text(event: CallRefused) -> str:
    """One refusal in a line, its texts as they are."""
    again = f" ({event.times:,} times)" if event.times > 1 else ""
    return line(f"{event.what} for {event.sandbox}: {event.reason}{again}")


def host_rows(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each host that sandboxes connected to, or were refused, the busiest first."""
    refused = Counter[str]()
    for event in view.refusals:
        if _HOST.fullmatch(event.what):
            refused[event.what] += event.times
    totals = dict.fromkeys(refused, HostTotals()) | view.hosts
    ordered = sorted(totals.items(), key=lambda named: (-named[1].connections, named[0]))
    return [
        (
            line(name, 200),
            *(f"{n:,}" for n in (host.connections, host.failed, refused[name], host.sent, host.received)),
        )
        for name, host in ordered
    ]


def _row(name: str, tally: ModelTally) -> tuple[str, ...]:
    figures = (tally.calls, tally.failed, tally.input_tokens, tally.output_tokens)
    return (name, *(f"{figure:,}" for figure in figures), money(tally.cost_usd, tally.unpriced))


def is_by_model(view: RunView) -> bool:
    """Return whether a reflection model proposes new texts, not the program."""
    return view.started is not None and view.started.proposer != "the program"


def is_typescript(view: RunView) -> bool:
    """Return whether the program is served by the TypeScript package."""
    return view.started is not None and view.started.server.endswith("(typescript)")


def setting_of(view: RunView, name: str, default: float) -> float:
    """Return a number of the run's settings; `default` if it is not set."""
    value = view.started.config.get(name) if view.started is not None else None
    return default if value is None else float(value)
