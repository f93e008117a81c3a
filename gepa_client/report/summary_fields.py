"""What a run came to, in words: its story, its facts and its tables."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evolverpc_common.display_text import counted, money, one_line, plain
from gepa_client.analysis.explanation import Explanation, moved_rows
from gepa_client.analysis.proposals import ComparedRow, Excerpt, Recorded
from gepa_client.certificate.leaks import Leaks
from gepa_client.evolution.candidate_names import code_label
from gepa_client.journal.entries import Spending
from gepa_client.journal.run_events import ModelTally, Mutated, Started
from gepa_client.report.event_words import Table, event_tables, rows_summary, totals
from gepa_client.run.output_folder import CERTIFICATE, HostTotals
from gepa_client.run.run_view import RunView
from gepa_client.settings.run_config import RunConfig

ENDED_SHOWN = 4000
"""Characters of why a run ended."""

LEAKS_SHOWN = 5
"""Rows found in the best candidate that are named."""

SIGNIFICANT = 0.05
"""The probability of chance below which a difference counts as unlikely to be chance."""

_HOST = re.compile(r"\S+:\d+")
"""A refused connection; other refusals name a model or a path."""


def story(view: RunView, explained: Explanation | None) -> list[str]:
    """Return what happened in a few sentences of plain text: the scores, how certain the difference is, the end."""
    headline, best = view.headline(), view.best
    sentences = []
    if headline is None or best is None:
        sentences.append("The run ended before the seed was scored.")
    elif best.index == 0:
        sentences.append(f"No candidate is better than the seed, which scores {headline.seed:.4g} on {headline.rows}.")
    else:
        sentences.append(
            f"On {headline.rows} the seed scores {headline.seed:.4g} and the best candidate ({best.index}) "
            f"scores {headline.best:.4g}."
        )
        if headline.of_test and view.seed is not None:
            if (compared := view.whole_validation()) is None:
                others = f"the {view.selection} scores, by which the search chose it,"
                before, after = view.seed.score, best.score
            else:
                others = f"those on {compared.rows}, on which it was compared with the seed after the search,"
                before, after = compared.seed, compared.best
            sentences.append(f"These are test scores; {others} are {before:.4g} and {after:.4g}.")
    if view.certificate is not None:
        weakened = ", weakened by leaks" if view.certificate.leaks.any else ""
        sentences.append(f"Verdict of the certificate: {view.certificate.verdict}{weakened}.")
    elif explained is not None and headline is not None and not headline.of_test:
        sentences += _certainty(explained, view)
    sentences.append(_ending(view))
    if explained is not None:
        proposer = "Reflection" if is_by_model(view) else "The program"
        by_hand = "propose" in view.steered_kinds
        makers = f"{proposer} and users" if by_hand else proposer
        made = f"{makers} made {counted(explained.proposed, 'proposal')}, of which {explained.kept} "
        made += "was kept." if explained.kept == 1 else "were kept."
        sentences.append(made)
    return sentences


def certificate_facts(view: RunView) -> list[tuple[str, str]]:
    """Return what the certificate states, as label and plain text, or why there is none; nothing before the end."""
    found = view.certificate
    if found is None:
        return [("no certificate", view.no_certificate)] if view.no_certificate is not None else []
    test, validation = found.test, found.validation
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
            f"; {counted(dropped, 'proposal')} more {'was' if dropped == 1 else 'were'} compared and dropped early"
        )
    return [
        ("verdict", found.statement),
        (
            "test scores",
            f"each of {counted(test.rows, 'test row')} was scored {times}: {test.repeats_reason}; for scores from "
            f"{test.score_range[0]:g} to {test.score_range[1]:g}: {test.method}",
        ),
        (f"{view.selection} scores", chosen),
        ("copied rows", leak_summary(found.leaks)),
        ("committed to", found.digests.test_rows),
    ]


def perfect_score(view: RunView) -> float:
    """Return the highest score, as far as the settings state it."""
    return setting_of(view, "perfect_score", 1.0)


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
    more = f" and others; {CERTIFICATE} lists {len(leaks.listed):,} of them" if leaks.rows > LEAKS_SHOWN else ""
    return one_line(f"the best candidate contains texts of {counted(leaks.rows, 'row')} (of {searched}): {first}{more}")


def _ending(view: RunView) -> str:
    budget = f" of {view.budget:,}" if view.budget is not None else ""
    used = f"after {view.metric_calls:,}{budget} metric calls and {view.active_seconds:.1f} s"
    finished = view.finished
    if finished is None:
        return f"It has not ended {used}."
    reason = f": {one_line(finished.reason, ENDED_SHOWN).rstrip('.')}" if finished.reason else ""
    return f"It {'paused' if finished.status == 'paused' else 'ended'} {used} ({finished.status}{reason})."


def _certainty(explained: Explanation, view: RunView) -> list[str]:
    """Return how far the difference between seed and best may be chance; nothing if there is no difference."""
    if explained.overall is None:
        return []
    of_search = "" if view.whole_validation() is None else " of the search"
    paired, rows = explained.overall.scores, f"the {view.selection} rows{of_search}"
    certain = "is unlikely to be chance" if paired.p < SIGNIFICANT else "may be chance"
    moved = (
        f"{moved_rows(paired)} with the best candidate: that {certain} (sign test over {rows}, "
        f"p {'below 0.001' if paired.p < 0.001 else f'= {paired.p:.3f}'})."
    )
    learnt = ", and it was made from their results" if view.training_only else ""
    lower = "so new rows may score lower; a test set shows by how much."
    return [
        moved,
        f"{rows.capitalize()} selected the candidate{learnt}, {lower}",
    ]


def minibatch_summary(proposal: Recorded, shown: int) -> str:
    """Return how many rows a proposal was made from, of which some are `shown`, and their scores, as sentences."""
    size = len(proposal.begun.rows)
    rows = f"It was made from the results of {counted(size, 'training row')}."
    sums = ""
    if proposal.evaluated is not None:
        before, after = proposal.begun.score, proposal.evaluated.score
        sums = f" Their scores add up to {before:.4g} before the change and {after:.4g} after it."
    return f"{rows}{sums}" + (f" The first {shown} of them:" if size > shown else "")


def row_title(row: ComparedRow) -> str:
    """`val 7: 0 -> 1`; a score that is not recorded is `?`."""
    before, after = (f"{one.score:.4g}" if one is not None else "?" for one in (row.before, row.after))
    return f"{row.split} {one_line(row.row, 100)}: {before} -> {after}"


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
    headline = view.headline()
    code = code_label(best.texts) if best is not None else None
    made = sum(isinstance(mutation, Mutated) for mutation in view.mutations)
    facts = {
        "program": _program(started) if started is not None else None,
        "test score": f"{headline.seed:.4g} -> {headline.best:.4g} ({headline.rows})"
        if headline is not None and headline.of_test
        else None,
        f"{view.selection} score": selection_score(view),
        "best code": one_line(code, 300) if code is not None else None,
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
        **totals(view),
        "changes of code": f"{made} made, {len(view.mutations) - made} refused" if view.mutations else None,
        "model calls": model_call_summary(view),
        "refused": counted(view.refused_calls, "time") if view.refused_calls else None,
    }
    if started is not None:
        facts["rows"] = rows_summary(started)
        facts["proposals by"] = one_line(started.proposer, 200)
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
    if view.finalized is not None:
        answer = view.finalized.error or view.finalized.message or "no message"
        facts["finalize failed" if view.finalized.error else "finalize"] = one_line(answer)
    return [(label, text) for label, text in facts.items() if text is not None]


def budget_note(view: RunView) -> str:
    """Return ` of 1,500`, and why more was used; empty without a budget.

    GEPA checks the budget between iterations, and finishes what has begun.
    """
    if view.budget is None:
        return ""
    return f" of {view.budget:,}" + (" (what had begun was finished)" if view.metric_calls > view.budget else "")


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


def reuse_summary(view: RunView) -> str | None:
    """Return how many results were reused; None if the program is not known to be deterministic."""
    reused = view.finished.reused if view.finished is not None else None
    return f"{reused:,}, not counted as metric calls" if reused is not None else None


def _program(started: Started) -> str:
    version = f", version {started.program_version}," if started.program_version else ""
    return one_line(f"{started.program}{version} behind {started.server} ({started.language}), {started.url}", 300)


def tables(view: RunView) -> list[Table]:
    """Return the tables of a run that have rows, in the order of their headings on a page."""
    models = ("model", "calls", "failed", "tokens in", "tokens out", "cost")
    hosts = ("host", "connections", "failed", "refused", "bytes sent", "received")
    found = [
        *event_tables(view),
        ("Model calls", models, _model_call_rows(view)),
        ("Hosts that sandboxes connected to", hosts, _host_rows(view)),
    ]
    return [table for table in found if table[2]]


WITHOUT_ANSWER = ("lost", None)
"""Outcomes of attempts without a response: their cost is unknown."""


def spending_table(spending: Sequence[Spending]) -> Table:
    """Return what a run spent, by kind and outcome of attempts."""
    columns = ("kind", "outcome", "attempts", "results", "seconds", "cost")
    rows = []
    for spent in sorted(spending, key=lambda one: (one.kind, one.outcome != "ok", one.outcome or "")):
        answered = spent.outcome not in WITHOUT_ANSWER
        known = answered or spent.cost_usd or spent.unpriced
        rows.append(
            (
                spent.kind,
                spent.outcome or "no answer yet",
                f"{spent.attempts:,}",
                f"{spent.examples:,}" if answered else "-",
                f"{spent.seconds:,.1f}",
                _cost(spent.cost_usd, spent.unpriced, spent.unreported) if known else "unknown",
            )
        )
    return "Calls", columns, rows


def _cost(usd: float, unpriced: int, unreported: int = 0) -> str:
    """Return what is known of a cost, in a few characters; a sentence beside the table counts what is unknown."""
    if unpriced == unreported:
        return money(usd, unpriced, unreported)
    return f"{money(usd)} + unknown" if usd else "unknown"


def whole_cost(spending: Sequence[Spending]) -> str:
    """Return the cost of all attempts, as far as it is known."""
    usd, unpriced, unreported = (
        sum(getattr(each, name) for each in spending) for name in ("cost_usd", "unpriced", "unreported")
    )
    return money(usd, unpriced, unreported)


def tokens_text(spending: Sequence[Spending]) -> str:
    """Return `1,200 tokens in, 300 out`, as far as they were reported."""
    read, written = sum(each.input_tokens for each in spending), sum(each.output_tokens for each in spending)
    return f"{read:,} tokens in, {written:,} out, as far as reported"


def excerpt_text(value: Excerpt) -> str:
    """Return the text with the number of characters that are left out."""
    return f"{value.text}\n… {value.omitted:,} characters left out …" if value.omitted else value.text


def _model_call_rows(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each model, the most expensive first, and their sum if there are several."""
    if view.model_calls is None:
        return []
    by_model = sorted(view.model_calls.by_model.items(), key=lambda named: (-named[1].cost_usd, named[0]))
    drawn = [_row(one_line(name, 200), tally) for name, tally in by_model]
    return [*drawn, _row("in all", view.model_calls.total)] if len(drawn) > 1 else drawn


def model_call_summary(view: RunView) -> str | None:
    """Return calls and cost in one line; None without calls."""
    if view.model_calls is None or not view.model_calls.total.calls:
        return None
    total = view.model_calls.total
    failed = f" ({total.failed:,} failed)" if total.failed else ""
    tokens = f"{total.input_tokens:,} tokens in, {total.output_tokens:,} out"
    return f"{total.calls:,}{failed}, {tokens}, {money(total.cost_usd, total.unpriced)}"


def _host_rows(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each host that sandboxes connected to, or were refused, the busiest first."""
    refused = Counter[str]()
    for event in view.refusals:
        if _HOST.fullmatch(event.what):
            refused[event.what] += event.times
    totals = dict.fromkeys(refused, HostTotals()) | view.hosts
    ordered = sorted(totals.items(), key=lambda named: (-named[1].connections, named[0]))
    return [
        (
            one_line(name, 200),
            *(f"{n:,}" for n in (host.connections, host.failed, refused[name], host.sent, host.received)),
        )
        for name, host in ordered
    ]


def _row(name: str, tally: ModelTally) -> tuple[str, ...]:
    figures = (tally.calls, tally.failed, tally.input_tokens, tally.output_tokens)
    return (name, *(f"{figure:,}" for figure in figures), _cost(tally.cost_usd, tally.unpriced))


def is_by_model(view: RunView) -> bool:
    """Return whether a reflection model proposes new texts, not the program."""
    return view.started is not None and view.started.config.get("reflection_lm") is not None


def setting_of(view: RunView, name: str, default: float) -> float:
    """Return a number of the run's settings; `default` if it is not set."""
    value = view.started.config.get(name) if view.started is not None else None
    return default if value is None else float(value)
