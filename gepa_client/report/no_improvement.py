"""Why a run did not improve its program, and what to try next."""

from collections import Counter
from collections.abc import Iterator, Mapping

from evolverpc_common.display_text import counted, one_line
from gepa_client.journal.run_events import FailureGroup, MutationRejected, Rejected
from gepa_client.report.event_words import failure_name
from gepa_client.report.summary_fields import is_by_model, perfect_score, setting_of
from gepa_client.run.run_view import RunView
from gepa_client.settings.run_settings import GEPA_MINIBATCH
from protocol.discovery import TYPESCRIPT

HINTS = 3
"""Suggestions that the end of a run without improvement shows."""

SAME = 3
"""Proposals that show the same, from which on that is no chance."""

FEW = 10
"""Proposals below which more of them are suggested first."""


def no_improvement(view: RunView) -> list[tuple[str, str]]:
    """Return label and plain text of each line about a run without improvement; none for other runs.

    It was completed, or paused after the program failed on most proposals. A seed that is perfect needs no improvement.
    """
    seed, best, finished = view.seed, view.best, view.finished
    if seed is None or best is None or best.index != 0 or finished is None:
        return []
    if finished.status != "completed" and not (finished.status == "paused" and _most_failed(view)):
        return []
    if seed.score >= perfect_score(view):
        return []
    facts = [("no improvement", f"{_tried(view)}; the seed is still the best candidate")]
    if outcomes := _outcomes(view):
        facts.append(("because", ", ".join(f"{count:,} {what}" for what, count in outcomes.items())))
    hints = list(_hints(view))[:HINTS]
    return facts + [("try" if at == 0 else "or", hint) for at, hint in enumerate(hints)]


def _tried(view: RunView) -> str:
    return f"{counted(_proposals(view), 'proposal')} in {counted(view.iteration, 'iteration')}"


def _outcomes(view: RunView) -> Counter[str]:
    """Return how many proposals and iterations ended in which way, the most frequent first."""
    failing = _failing(view)
    found = Counter({f"not better on the {view.selection} rows": len(view.candidates) - 1})
    found.update(_rejection(event, failing, view.selection) for event in view.rejected)
    found.update(f"without a proposal ({one_line(event.reason, 60)})" for event in view.skipped)
    found.update(f"failed in {one_line(event.step, 40)}" for event in view.failures)
    refused = (event for event in view.mutations if isinstance(event, MutationRejected))
    found.update(f"changes of code refused at stage {one_line(event.stage, 20)}" for event in refused)
    return Counter({what: count for what, count in found.most_common() if count})


def _failing(view: RunView) -> dict[str | None, FailureGroup]:
    """Return the failure that the program had on most rows of a proposal, by the beginning of the proposal's digest."""
    proposed = Counter(event.candidate for event in view.rejected)
    found: dict[str | None, FailureGroup] = {}
    for group in view.failed_examples.groups if view.failed_examples is not None else ():
        for candidate, count in group.candidates.items():
            if 2 * count > proposed[candidate] * _minibatch(view) > 0:
                found[candidate] = group
    return found


def _most_failed(view: RunView) -> list[FailureGroup]:
    """Return the failure of each proposal on which the program failed; none unless these are most proposals."""
    failing = _failing(view)
    failed = [failing[event.candidate] for event in view.rejected if event.candidate in failing]
    return failed if 2 * len(failed) > _proposals(view) else []


def _proposals(view: RunView) -> int:
    return len(view.rejected) + len(view.candidates) - 1


def _rejection(event: Rejected, failing: Mapping[str | None, FailureGroup], selection: str) -> str:
    if event.outcome != "rejected":
        return f"{event.outcome.replace('_', ' ')} on the {selection} rows"
    if not event.is_by_score:
        return one_line(event.reason, 80)
    if (group := failing.get(event.candidate)) is not None:
        return f"on which the program failed ({one_line(failure_name(group), 60)})"
    if event.unchanged:
        return "with the texts of their parent"
    return (
        "with the same score on their minibatch" if event.new_score == event.old_score else "worse on their minibatch"
    )


def _judged(view: RunView) -> list[Rejected]:
    """Return the proposals with new texts that ran and were not better on their minibatch."""
    failing = _failing(view)
    return [
        event for event in view.rejected if event.is_by_score and not event.unchanged and event.candidate not in failing
    ]


def _hints(view: RunView) -> Iterator[str]:
    """Yield what to try next, the most promising first; more proposals only if nothing else was found."""
    proposals = _proposals(view)
    faults = sorted(_faults(view, proposals), key=lambda fault: -fault[0])
    yield from (hint for _, hint in faults)
    scored = _judged(view)
    same = sum(event.new_score == event.old_score for event in scored)
    size, is_small = _minibatch(view), False
    only = len(view.candidates) - 1 + view.races.lost  # better on their minibatch alone: the seed is still the best
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
            + (", or another `reflection_lm`" if is_by_model(view) else "")
            + ": most proposals made their minibatch worse"
        )
    if only and not view.training_only:
        yield (
            "more training rows, and of the same kinds as the validation rows: "
            f"{counted(only, 'proposal')} improved a minibatch only"
        )
    elif only and not is_small:
        yield f"`reflection_minibatch_size` {2 * size}: {counted(only, 'proposal')} improved a minibatch only"
    if proposals < FEW and not faults and view.budget is not None:
        yield f"`max_metric_calls` {2 * view.metric_calls}: {counted(proposals, 'proposal')} may be too few"


def _faults(view: RunView, proposals: int) -> Iterator[tuple[int, str]]:
    """Yield how often what kept proposals from being judged by their scores, with the hint; more would end the same."""
    proposer, iterations = _proposer(view), counted(view.iteration, "iteration")
    perfect, empty = (sum(getattr(event, name) for event in view.skipped) for name in ("perfect", "empty"))
    unchanged = sum(event.unchanged for event in view.rejected)
    if view.failures:
        first = view.failures[0]
        yield len(view.failures), f"the log: {first.step} failed first with {one_line(first.message, 200)}"
    if failed := _most_failed(view):
        group = failed[0]
        yield (
            len(failed),
            f"a fix of the program, or of {proposer}: on {len(failed):,} of {counted(proposals, 'proposal')} the "
            f"program failed, as with {one_line(failure_name(group), 60)}: {one_line(group.message, 200)}",
        )
    scores = [score for event in view.rejected for score in (event.old_score, event.new_score)]
    if (scores or empty) and not any([*scores, *(event.score for event in view.candidates)]):
        yield (
            len(view.rejected) - len(failed) + empty,
            "a fix of the score function: every score of this run was 0; is it given the field that holds the expected "
            "answer, and does it read the output as the program writes it?",
        )
    if unchanged > proposals / 2:
        yield (
            unchanged,
            f"another {proposer}: {unchanged:,} of {counted(proposals, 'proposal')} had the texts of their parent, "
            "unchanged",
        )
    if perfect > proposals:
        yield perfect, f"training rows that the seed fails on: {perfect:,} of {iterations} had perfect scores already"
    if (dropped := view.unusable.dropped) > proposals:
        yield (
            dropped,
            f"another {proposer}: {counted(dropped, 'text')} had to be dropped ({', '.join(view.unusable.reasons)})",
        )
    if empty > proposals:
        yield empty, f"another {proposer}: {empty:,} of {iterations} had no new text"


def _proposer(view: RunView) -> str:
    """Return the name, as the user writes it, of what proposes new texts."""
    if is_by_model(view):
        return "`reflection_lm`"
    return "`proposeNewTexts`" if view.language == TYPESCRIPT else "`propose_new_texts`"


def _minibatch(view: RunView) -> int:
    return int(setting_of(view, "reflection_minibatch_size", GEPA_MINIBATCH))
