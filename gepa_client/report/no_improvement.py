"""Why a run did not improve its program, or used few of its iterations, and what to try next."""

from collections import Counter
from collections.abc import Iterator, Mapping

from evolverpc_common.display_text import counted, line
from gepa_client.journal.run_events import FailureGroup, MutationRejected, Rejected
from gepa_client.report.proposed_texts import unusable_hints
from gepa_client.report.run_record import RunRecord
from gepa_client.report.summary_fields import failure_name, is_by_model, is_typescript, perfect_score, setting_of

EXAMPLES, HINTS = 3, 3
"""Rejected proposals and suggestions that the end of a run without improvement shows."""

GEPA_MINIBATCH = 3
"""Rows of a minibatch by GEPA's default."""

SAME = 3
"""Proposals that show the same, from which on that is no chance."""

FEW = 10
"""Proposals below which more of them are suggested first."""


def no_improvement(record: RunRecord) -> list[tuple[str, str]]:
    """Return label and plain text of each line about a run without improvement; none for other runs.

    It was completed, or paused after the program failed on most proposals. A seed that is perfect needs no improvement.
    """
    seed, best, finished = record.seed, record.best, record.finished
    if seed is None or best is None or best.index != 0 or finished is None:
        return []
    if finished.status != "completed" and not (finished.status == "paused" and _most_failed(record)):
        return []
    if seed.score == perfect_score(record):
        return []
    facts = [("no improvement", f"{_tried(record)}; the seed is still the best candidate")]
    if outcomes := _outcomes(record):
        facts.append(("because", ", ".join(f"{count:,} {what}" for what, count in outcomes.items())))
    if examples := _examples(record):
        facts.append(("for example", examples))
    hints = list(_hints(record))[:HINTS]
    return facts + [("try" if at == 0 else "or", hint) for at, hint in enumerate(hints)]


def unused_iterations(record: RunRecord) -> str | None:
    """Return how many iterations of a completed run had nothing to learn from; None if at most half, or few."""
    if record.finished is None or record.finished.status != "completed" or record.best is None or not record.best.index:
        return None
    unused, last = sum(event.perfect for event in record.skipped), _iterations(record)
    if unused < FEW or unused <= last / 2:
        return None
    found = (
        f"{unused:,} of {last:,} iterations proposed nothing, as the training rows of their minibatch were right "
        f"already, while the mean score of the {record.selection} rows is {record.best.score:.4g}"
    )
    advice = []
    if record.best.score < perfect_score(record) and not record.training_only:
        advice.append(
            "give more training rows, of the kinds of validation rows that are still wrong (the report lists them)"
        )
    if not setting_of(record, "patience", 0):
        advice.append("end sooner with `patience`")
    return ": ".join(filter(None, (found, ", or ".join(advice))))


def _iterations(record: RunRecord) -> int:
    kept, others = [each.iteration for each in record.candidates], [each.iteration for each in record.rejected]
    return max([*kept, *others, *(each.iteration for each in record.skipped)], default=0)


def _tried(record: RunRecord) -> str:
    return f"{counted(_proposals(record), 'proposal')} in {counted(_iterations(record), 'iteration')}"


def _outcomes(record: RunRecord) -> Counter[str]:
    """Return how many proposals and iterations ended in which way, the most frequent first."""
    failing = _failing(record)
    found = Counter({f"not better on the {record.selection} rows": len(record.candidates) - 1})
    found.update(_rejection(event, failing, record.selection) for event in record.rejected)
    found.update(f"without a proposal ({line(event.reason, 60)})" for event in record.skipped)
    found.update(f"failed in {line(event.step, 40)}" for event in record.failures)
    refused = (event for event in record.mutations if isinstance(event, MutationRejected))
    found.update(f"changes of code refused at stage {line(event.stage, 20)}" for event in refused)
    return Counter({what: count for what, count in found.most_common() if count})


def _failing(record: RunRecord) -> dict[str | None, FailureGroup]:
    """Return the failure that the program had on most rows of a proposal, by the beginning of the proposal's digest."""
    proposed = Counter(event.candidate for event in record.rejected)
    found: dict[str | None, FailureGroup] = {}
    for group in record.failed_examples.groups if record.failed_examples is not None else ():
        for candidate, count in group.candidates.items():
            if 2 * count > proposed[candidate] * _minibatch(record) > 0:
                found[candidate] = group
    return found


def _most_failed(record: RunRecord) -> list[FailureGroup]:
    """Return the failure of each proposal on which the program failed; none unless these are most proposals."""
    failing = _failing(record)
    failed = [failing[event.candidate] for event in record.rejected if event.candidate in failing]
    return failed if 2 * len(failed) > _proposals(record) else []


def _proposals(record: RunRecord) -> int:
    return len(record.rejected) + len(record.candidates) - 1


def _rejection(event: Rejected, failing: Mapping[str | None, FailureGroup], selection: str) -> str:
    if event.race is not None:
        return f"raced out on the {selection} rows"
    if not event.is_by_score:
        return line(event.reason, 80)
    if (group := failing.get(event.candidate)) is not None:
        return f"on which the program failed ({line(failure_name(group), 60)})"
    if event.unchanged:
        return "with the texts of their parent"
    return (
        "with the same score on their minibatch" if event.new_score == event.old_score else "worse on their minibatch"
    )


def _judged(record: RunRecord) -> list[Rejected]:
    """Return the proposals with new texts that ran and were not better on their minibatch."""
    failing = _failing(record)
    return [
        event
        for event in record.rejected
        if event.is_by_score and not event.unchanged and event.candidate not in failing
    ]


def _examples(record: RunRecord) -> str:
    """Return three proposals with their scores before and after: first, middle and last of those rejected by score."""
    scored = _judged(record)
    if not scored:
        return ""
    chosen = [scored[at] for at in sorted({0, len(scored) // 2, len(scored) - 1})][:EXAMPLES]
    shown = ", ".join(f"{event.old_score:g} -> {event.new_score:g} (iteration {event.iteration})" for event in chosen)
    return f"{shown}; sums over minibatches of {counted(_minibatch(record), 'row')}"


def _hints(record: RunRecord) -> Iterator[str]:
    """Yield what to try next, the most promising first; more proposals only if nothing else was found."""
    proposals = _proposals(record)
    faults = sorted(_faults(record, proposals), key=lambda fault: -fault[0])
    yield from (hint for _, hint in faults)
    scored = _judged(record)
    same = sum(event.new_score == event.old_score for event in scored)
    size, is_small = _minibatch(record), False
    only = len(record.candidates) - 1 + record.races.lost
    if not faults and scored and not any(event.old_score or event.new_score for event in scored):
        yield "a score with values between 0 and 1: every minibatch scored 0 before and after, which shows no progress"
    elif not faults and same > len(scored) / 2:
        is_small = True
        yield (
            f"`reflection_minibatch_size` {2 * size}: most proposals scored the same on {counted(size, 'row')}, "
            "too few to show a small improvement"
        )
        if same == len(scored) >= SAME and not only:
            yield "a check that the program uses the candidate's texts: no proposal changed the score of its minibatch"
    if len(scored) - same > proposals / 2:
        yield (
            "feedback that states what was expected and why the output is wrong"
            + (", or another `reflection_lm`" if is_by_model(record) else "")
            + ": most proposals made their minibatch worse"
        )
    if only and not record.training_only:
        yield (
            "more training rows, and of the same kinds as the validation rows: "
            f"{counted(only, 'proposal')} improved a minibatch only"
        )
    elif only and not is_small:
        yield f"`reflection_minibatch_size` {2 * size}: {counted(only, 'proposal')} improved a minibatch only"
    if proposals < FEW and not faults and record.budget is not None:
        yield f"`max_metric_calls` {2 * record.metric_calls}: {counted(proposals, 'proposal')} may be too few"


def _faults(record: RunRecord, proposals: int) -> Iterator[tuple[int, str]]:
    """Yield how often what kept proposals from being judged by their scores, with the hint; more would end the same."""
    proposer, iterations = _proposer(record), counted(_iterations(record), "iteration")
    perfect, empty = (sum(getattr(event, name) for event in record.skipped) for name in ("perfect", "empty"))
    unchanged = sum(event.unchanged for event in record.rejected)
    if record.failures:
        first = record.failures[0]
        yield len(record.failures), f"the log: {first.step} failed first with {line(first.message, 200)}"
    if failed := _most_failed(record):
        group = failed[0]
        yield (
            len(failed),
            f"a fix of the program, or of {proposer}: on {len(failed):,} of {counted(proposals, 'proposal')} the "
            f"program failed, as with {line(failure_name(group), 60)}: {line(group.message, 200)}",
        )
    scores = [score for event in record.rejected for score in (event.old_score, event.new_score)]
    if (scores or empty) and not any([*scores, *(event.score for event in record.candidates)]):
        yield (
            len(record.rejected) - len(failed) + empty,
            "a fix of the score function: every score of this run was 0; is it given the field that holds the expected "
            "answer, and does it read the output as the program writes it?",
        )
    if unchanged > proposals / 2:
        yield (
            unchanged,
            f"another {proposer}: {unchanged:,} of {counted(proposals, 'proposal')} had the texts of their parent, "
            "unchanged",
        )
    texts = {event.candidate for event in record.rejected}
    if len(record.rejected) >= SAME and len(texts) == 1 and None not in texts and not unchanged:
        count = len(record.rejected)
        yield count, f"another {proposer}: all {count:,} proposals that were not kept have the same texts"
    if perfect > proposals:
        yield perfect, f"training rows that the seed fails on: {perfect:,} of {iterations} had perfect scores already"
    yield from unusable_hints(record, proposer)
    if empty > proposals:
        yield empty, f"another {proposer}: {empty:,} of {iterations} had no new text"


def _proposer(record: RunRecord) -> str:
    """Return the name, as the user writes it, of what proposes new texts."""
    if is_by_model(record):
        return "`reflection_lm`"
    return "`proposeNewTexts`" if is_typescript(record) else "`propose_new_texts`"


def _minibatch(record: RunRecord) -> int:
    return int(setting_of(record, "reflection_minibatch_size", GEPA_MINIBATCH))
