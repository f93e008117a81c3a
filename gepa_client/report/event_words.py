"""What happened in a run, in words: a line for each event, and a sentence for all events of a kind together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evolverpc_common.display_text import counted, one_line
from gepa_client.evolution.candidate_names import candidate_name, code_label
from gepa_client.journal import run_events as events
from gepa_client.report.calling_program import blocked_hint, where_of
from gepa_client.run.run_view import RunView

PHASES: dict[str | None, str] = {
    None: "connecting",
    "connecting": "connecting",
    "seed": "scoring the seed",
    "replaying": "replaying the journal",
    "optimizing": "optimizing",
    "ties": "comparing the best candidates",
    "testing": "scoring the test rows",
    "finalizing": "calling finalize",
}

REQUEST = 160
"""Characters of a change request that are shown."""

LONGEST_FAILURE = 20_000

FAILURES_NAMED = 10
"""Rows and candidates of a group that are named."""

COPIES_NAMED = 3
"""Copies that a sentence names."""


@dataclass(frozen=True)
class EventText:
    """A line about an event, empty if none is shown. `lead`: its first words; `style`: theirs, or of all without them.

    Texts of servers and models are part of it as they are; `whole`: they may have several lines. `is_kept`: the
    terminal prints it above the frame and keeps it there.
    """

    text: str = ""
    style: str = ""
    lead: str = ""
    whole: bool = False
    is_kept: bool = False


def event_line(event: events.Event) -> EventText:
    """Return the line about an event."""
    match event:
        case events.Started():
            components = one_line(", ".join(event.components))
            text = f"{where_of(event.server, event.language)}: {_rows(event)}; components {components}"
            text += f"; proposals by {one_line(event.proposer)}"
            text += f"; continues run {event.run_id}" if event.resumed else ""
            return EventText(text, "bold", one_line(event.program))
        case events.Warned():
            return EventText(event.message, "yellow", "warning:", whole=True, is_kept=True)
        case events.Phase() if event.phase != "connecting":
            return EventText(PHASES[event.phase])
        case events.CandidateFound(index=0):
            return EventText(f"the seed scores {event.score:.4g}")
        case events.CandidateFound():
            code, best = code_label(event.texts), event.best == event.index
            runs = f" ({one_line(code, 100)})" if code is not None else ""
            found = f"candidate {event.index} from {' and '.join(map(str, event.parents))}: {event.score:.4g}"
            return EventText(f"{found}{' best so far' if best else ''}{runs}", "green" if best else "")
        case events.Rejected() if event.is_by_score:
            scores = f"{event.old_score:g} -> {event.new_score:g}"
            return EventText(f"proposal not kept: {scores}, sum over its minibatch", "dim")
        case events.Rejected():
            return EventText(f"proposal not kept: {one_line(event.reason)}", "dim")
        case events.NoProposal():
            return EventText(f"iteration {event.iteration}: no proposal: {one_line(event.reason)}", "dim")
        case events.FleetChanged():
            return fleet_line(event)
        case events.MutationStarted():
            return EventText(f"change {event.number}, of {_origin(event)}: {one_line(event.request, REQUEST)}")
        case events.MutationProgress():
            return EventText(f"change {event.number}: {one_line(event.message, REQUEST)}", "dim")
        case events.Mutated():
            size = size_text(event.lines_added, event.lines_removed, len(event.files))
            return EventText(f"change {event.number} made: {size}: {one_line(event.summary or event.request, REQUEST)}")
        case events.MutationRejected():
            why = f"at stage {one_line(event.stage, 20)}: {one_line(event.reason)}"
            return EventText(why, "yellow", f"change {event.number} rejected")
        case events.StepFailed():
            lead = f"iteration {event.iteration}: {one_line(event.step)} failed:"
            return EventText(one_line(event.message), "red", lead, is_kept=True)
        case events.RecordsCut():
            cut = f"{event.shortened:,} of {event.records:,} shortened, {event.left_out:,} left out"
            text = f"{one_line(event.component, 80)}: {cut}, about {event.tokens:,} tokens"
            return EventText(f"{text}; to show more, raise {event.setting}", "yellow", "records cut for")
        case events.UnusableAnswer():
            return EventText(_unusable(event), "yellow", "answer not used for")
        case events.CopiedExamples():
            return EventText(_copied_summary(event), "yellow", "copied:")
        case events.Steered():
            return EventText(_steered(event), "yellow" if event.refused else "bold", "steered:")
        case events.Sealed():
            return EventText(f"committed to {counted(event.rows, 'test row')}: {event.digest}", is_kept=True)
        case events.TiesCompared():
            return EventText(_tie_summary(event))
        case events.Tested():
            times = f", {event.repeats} times each" if event.repeats > 1 else ""
            return EventText(f"{candidate_name(event.index)}: {event.score:.4g} on {event.rows} test rows{times}")
        case events.Finalized(error=str()):
            return EventText(one_line(event.error or ""), "yellow", "finalize failed:", is_kept=True)
        case events.Finalized():
            text = f"finalize: {one_line(event.message)}" if event.message else "finalize was called"
            return EventText(text, is_kept=True)
        case events.CallRefused():
            return EventText(refusal_text(event), "yellow", "refused")
        case _:
            return EventText()


def totals(view: RunView) -> dict[str, str | None]:
    """Return a sentence for all events of a kind, by its label; None if there is none."""
    return {
        "steered": _steered_summary(view.steered_kinds),
        "races": _race_summary(view.races),
        "compared": None if view.ties is None else _tie_summary(view.ties),
        "failed examples": None if view.failed_examples is None else failure_summary(view.failed_examples),
        "retries": None if view.retried is None else _retry_summary(view.retried),
        "records cut": _cut_summary(view.cuts),
        "answers not used": _unusable_summary(view.unusable),
        "copied examples": None if view.copied is None else _copied_summary(view.copied),
    }


Table = tuple[str, Sequence[str], Sequence[tuple[str, ...]]]
"""A heading, the names of columns, and rows that each begin with a name."""


def event_tables(view: RunView) -> list[Table]:
    """Return a table of what was copied, and one of what was refused."""
    copied = [
        (
            one_line(f"candidate {copy.candidate}, {copy.component}, {_copied_rows(copy)}: {copy.text}", 300),
            f"{copy.words:,}",
            f"{copy.row_count:,}",
        )
        for copy in (view.copied.copies if view.copied is not None else ())
    ]
    refused = [(event.what, refusal_text(event)) for event in view.refusals]
    return [
        ("Copied from training rows", ("copy", "words", "rows"), copied),
        ("Refused", ("request", "reason"), refused),
    ]


def clock(seconds: float) -> str:
    """Return `0:42`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- rows and servers ------------------------------------------------------------------------------------------------


def _rows(event: events.Started) -> str:
    """Return `40 train, 20 val rows`."""
    summary = rows_summary(event)
    return f"rows: {summary}" if event.training_only else f"{summary} rows"


def rows_summary(event: events.Started) -> str:
    """Return `40 train, 20 val`, or `40 train (no validation rows: they select the candidates too)`."""
    also = {"train": " (no validation rows: they select the candidates too)"} if event.training_only else {}
    if event.sampled is not None:
        also["val"] = f" (the search scores candidates on {event.sampled} of them)"
    shown = [split for split in event.splits if not event.training_only or split != "val"]
    return ", ".join(f"{event.splits[split]} {split}{also.get(split, '')}" for split in shown)


def fleet_line(event: events.FleetChanged) -> EventText:
    """Return the line about a change of the fleet."""
    where, detail = one_line(event.url or "the fleet", 80), one_line(event.detail)
    after = f": {detail}" if detail else ""
    match event.kind:
        case "waiting":
            limit = f" (up to {clock(event.after)})" if event.after is not None else ""
            hint = f"; {blocked}" if (blocked := blocked_hint(event.detail)) else ""
            return EventText(f"{detail}{hint}", "yellow", f"no server answers, waiting{limit}{':' * bool(detail)}")
        case "resting":
            return EventText(detail, "yellow", f"{where} is paused{':' * bool(detail)}")
        case "refused" | "warning":
            return EventText(detail, "yellow", f"{where}{':' * bool(detail)}")
        case "joined":
            return EventText(f"{where} joined{after}", "dim")
        case "back":
            return EventText(f"{where} is back{after}", "green")
        case "left":
            return EventText(f"{where} has left{after}")


def refusal_text(event: events.CallRefused) -> str:
    """One refusal in a line, its texts as they are."""
    again = f" ({event.times:,} times)" if event.times > 1 else ""
    return one_line(f"{event.what} for {event.sandbox}: {event.reason}{again}")


# --- proposals -------------------------------------------------------------------------------------------------------


def _race_summary(races: events.LostRaces) -> str | None:
    """Return how many proposals lost their race, by how many scores, and the metric calls; None without any.

    A row that had begun when the decision fell is a metric call too, and one that was scored before is none.
    """
    if not races.lost:
        return None
    begun = races.calls - races.compared
    rest = f", and {begun:,} more had begun" if begun > 0 else f", {-begun:,} of them known before" if begun else ""
    scores = f"{counted(races.compared, 'score')} of rows ({races.compared / races.lost:.3g} each in the mean)"
    return f"{counted(races.lost, 'proposal')}, by {scores}{rest}: {races.calls:,} metric calls, {races.saved:,} saved"


def rejected_text(view: RunView) -> str:
    """Return `7 rejected, 2 of them lost a race`; empty if none was."""
    lost = f", {view.races.lost} of them lost a race" if view.races.lost else ""
    return f"{len(view.rejected)} rejected{lost}" if view.rejected else ""


def _tie_summary(ties: events.TiesCompared) -> str:
    """Return which of the best candidates were compared, on how many fresh rows, and which is the best."""
    means = ", ".join(f"{candidate_name(each.index)} {each.mean:.4g}" for each in ties.candidates)
    found = f"means over {ties.validation_rows + ties.rows:,} rows: {means}; the best is {candidate_name(ties.best)}"
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


def _origin(mutation: events.MutationStarted) -> str:
    """`candidate 3`, or `candidates 3 and 5, merged`."""
    if mutation.kind == "merge":
        return f"candidates {' and '.join(map(str, mutation.parents))}, merged"
    return candidate_name(mutation.parents[0] if mutation.parents else 0)


def size_text(added: int, removed: int, files: int) -> str:
    """Return `+12 -3 in 2 files`."""
    return f"+{added:,} -{removed:,} in {counted(files, 'file')}"


def _steered(event: events.Steered) -> str:
    if event.refused is not None:
        return f"refused: {event.text}, asked by {event.author}: {event.refused}"
    return f"{event.text}, asked by {event.author} (entry {event.number})"


def _steered_summary(kinds: Sequence[str]) -> str | None:
    """Return how often a run was steered, by the kinds of the requests that it took; None if it was not."""
    if not kinds:
        return None
    found = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in Counter(kinds).items())
    return f"{counted(len(kinds), 'request')} by hand: {found}"


# --- texts -----------------------------------------------------------------------------------------------------------


def _unusable_summary(answers: events.UnusableAnswers) -> str | None:
    """`7 answers (4 truncated, 3 monologue); 5 asked for once more, 2 texts dropped`; None without any."""
    if not answers.reasons:
        return None
    ordered = sorted(answers.reasons.items(), key=lambda each: -each[1])
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in ordered)
    asked = f"{answers.asked_again:,} asked for once more, " if answers.asked_again else ""
    total = counted(sum(answers.reasons.values()), "answer")
    return f"{total} ({reasons}); {asked}{counted(answers.dropped, 'text')} dropped"


def _unusable(event: events.UnusableAnswer) -> str:
    """One such answer in a line, its component as it is."""
    if not event.asked_again:
        return one_line(f"{event.component}: the proposed text is {_called(event.reason)} and was dropped", 200)
    second = "a second one was used" if event.then is None else f"the second one {_called(event.then)}: dropped"
    return one_line(f"{event.component}: the answer was {_called(event.reason)}, {second}", 200)


def _called(reason: str) -> str:
    return {"monologue": "a monologue", "not text": "no text of Unicode"}.get(reason, reason)


def _copied_summary(copied: events.CopiedExamples) -> str:
    """`2 parts of training rows: 13 words of row 7 in candidate 3 (rules), ...`."""
    found = ", ".join(
        f"{copy.words:,} words of {_copied_rows(copy)} in candidate {copy.candidate} ({copy.component})"
        for copy in copied.copies[:COPIES_NAMED]
    )
    return one_line(
        f"{counted(copied.count, 'part')} of training rows: {found}{', ...' * (copied.count > COPIES_NAMED)}"
    )


def _copied_rows(copy: events.CopiedExample) -> str:
    """`row 7`, `rows 7, 9`, `rows 1, 2, 3, 4, 5 and 45 more`."""
    more = copy.row_count - len(copy.rows)
    return f"row{'' if copy.row_count == 1 else 's'} {', '.join(copy.rows)}" + (f" and {more:,} more" if more else "")


def _cut_summary(cuts: events.RecordCuts) -> str | None:
    """Return how much of the records did not fit into prompts, in which iterations, and which setting to raise."""
    if not cuts.prompts:
        return None
    where = f"iteration {cuts.first:,}" if cuts.first == cuts.last else f"iterations {cuts.first:,} to {cuts.last:,}"
    return (
        f"in {counted(cuts.prompts, 'reflection prompt')} ({where}) {counted(cuts.shortened, 'record')} shortened and "
        f"{cuts.left_out:,} left out, about {cuts.tokens:,} tokens; to show more, raise {' or '.join(cuts.settings)}"
    )


# --- failed examples -------------------------------------------------------------------------------------------------


def failure_summary(failed: events.FailedExamples) -> str:
    """`6 of 60 evaluations: 5 KeyError, 1 timeout`; texts as they are."""
    groups = ", ".join(f"{group.count:,} {failure_name(group)}" for group in failed.groups[:FAILURES_NAMED])
    return one_line(f"{failed.failed:,} of {failed.evaluated:,} evaluations: {groups}")


def _retry_summary(retried: events.RetriedExamples) -> str:
    """`9 examples were tried again after 12 failures: api.openai.com 429 (10), refused (2)`."""
    hosts: dict[str | None, list[str]] = {}
    for group in retried.groups[:FAILURES_NAMED]:
        hosts.setdefault(group.host, []).append(f"{group.reason} ({group.failures:,})")
    listed = "; ".join(f"{host + ' ' if host else ''}{', '.join(reasons)}" for host, reasons in hosts.items())
    more = ", ..." if len(retried.groups) > FAILURES_NAMED else ""
    were = "was" if retried.examples == 1 else "were"
    failures = counted(sum(group.failures for group in retried.groups), "failure")
    return one_line(f"{counted(retried.examples, 'example')} {were} tried again after {failures}: {listed}{more}")


def failure_name(group: events.FailureGroup) -> str:
    """Return the exception's type, or `timeout`, with its type if it has another one."""
    if group.status == "program_error":
        return group.type
    return "timeout" if group.type.lower() in ("timeout", "timeouterror") else f"timeout ({group.type})"


def failure_places(group: events.FailureGroup, most: int = FAILURES_NAMED) -> str:
    """`5 examples; on 3 rows: val 1, val 4, train 1; by candidates: 0 (4 times), 2 (once)`."""
    rows = ", ".join(group.rows[:most]) + (", ..." if group.row_count > min(most, len(group.rows)) else "")
    times = [
        f"{candidate} ({'once' if count == 1 else f'{count:,} times'})" for candidate, count in group.candidates.items()
    ]
    by = ", ".join(times[:most]) + (", ..." if len(times) > most else "")
    return one_line(
        f"{counted(group.count, 'example')}; on {counted(group.row_count, 'row')}: {rows}; "
        f"by {'candidate' if len(times) == 1 else 'candidates'}: {by}",
        LONGEST_FAILURE,
    )


def failure_messages(group: events.FailureGroup) -> str | None:
    """Return `2 different messages: 'returns' (14 times), 'account' (12 times)`; None if all have the same one."""
    if group.message_count < 2:
        return None
    listed = ", ".join(
        f"{one_line(message, 160)} ({'once' if count == 1 else f'{count:,} times'})"
        for message, count in group.messages.items()
    )
    more = ", ..." if group.message_count > len(group.messages) else ""
    return one_line(f"{group.message_count:,} different messages: {listed}{more}", LONGEST_FAILURE)


def first_failure(group: events.FailureGroup, most: int | None = None) -> str:
    """Return the first failure: row, candidate and message, with its traceback and its log on further lines.

    `most`: lines of the traceback, and of the log, that are kept, from the end.
    """
    parts = [f"the first: row {group.row}, candidate {group.candidate}: {group.type}: {group.message}"]
    if group.traceback:
        parts += group.traceback.rstrip().splitlines()[-(most or 0) :]
    if group.log:
        parts += ["the program wrote:", *group.log.rstrip().splitlines()[-(most or 0) :]]
    return "\n".join(parts)
