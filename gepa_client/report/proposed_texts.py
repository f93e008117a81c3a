"""Proposed texts in reports and on the terminal: answers of reflection that were not used, and copied examples."""

from collections.abc import Iterator

from evolverpc_common.display_text import counted, line
from gepa_client.journal.run_events import CopiedExample, CopiedExamples, UnusableAnswer, UnusableAnswers
from gepa_client.run.run_view import RunView

UNUSABLE_SHOWN = 50
"""Answers that are listed."""

UNUSABLE_COLUMNS = ("text", "first answer", "second answer", "the proposal")

COPIES_NAMED = 3
"""Copies that a summary names; a table lists all that the event has."""

COPY_COLUMNS = ("copy", "words", "rows")

ADVICE = {
    "truncated": "a higher `max_tokens`, or a lower `reasoning_effort`, in `reflection_lm_kwargs`",
    "empty": "a higher `max_tokens` in `reflection_lm_kwargs`, or another {proposer}",
    "unchanged": "another {proposer}, or feedback that states what to change",
    "monologue": "a lower `reasoning_effort` in `reflection_lm_kwargs`, or another {proposer}",
    "ambiguous": "another {proposer}, or a prompt template that asks for one block",
    "not text": "another {proposer}",
    "too long": "a higher `max_component_tokens`",
}
"""What to try, by the reason of most unusable answers."""


def unusable_summary(answers: UnusableAnswers) -> str | None:
    """`7 answers (4 truncated, 3 monologue); 5 asked for once more, 2 texts dropped`; None without any."""
    if not answers.reasons:
        return None
    ordered = sorted(answers.reasons.items(), key=lambda named: -named[1])
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in ordered)
    asked = f"{answers.asked_again:,} asked for once more, " if answers.asked_again else ""
    total = counted(sum(answers.reasons.values()), "answer")
    return f"{total} ({reasons}); {asked}{counted(answers.dropped, 'text')} dropped"


def unusable_text(event: UnusableAnswer) -> str:
    """One such answer in a line, its component as it is."""
    if not event.asked_again:
        return line(f"{event.component}: the proposed text is {_called(event.reason)} and was dropped", 200)
    second = "a second one was used" if event.then is None else f"the second one {_called(event.then)}: dropped"
    return line(f"{event.component}: the answer was {_called(event.reason)}, {second}", 200)


def _called(reason: str) -> str:
    return {"monologue": "a monologue", "not text": "no text of Unicode"}.get(reason, reason)


def unusable_rows(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each unusable answer, the first `UNUSABLE_SHOWN` of them."""
    return [
        (
            line(f"iteration {event.iteration:,}, {event.component}", 200),
            event.reason,
            (event.then or "used") if event.asked_again else "-",
            "lacks it" if event.dropped else "has it",
        )
        for event in view.unusable_answers[:UNUSABLE_SHOWN]
    ]


def unusable_hints(view: RunView, proposer: str) -> Iterator[tuple[int, str]]:
    """Yield how many texts were dropped and what to try, if these were more than the proposals that were evaluated."""
    evaluated = len(view.rejected) + len(view.candidates) - 1
    if view.unusable.dropped > evaluated:
        reason = max(view.unusable.reasons, key=lambda each: view.unusable.reasons[each])
        most = f"{view.unusable.reasons[reason]:,} of {sum(view.unusable.reasons.values()):,} unusable answers"
        yield view.unusable.dropped, f"{ADVICE[reason].format(proposer=proposer)}: {most} were {_called(reason)}"


def copied_summary(copied: CopiedExamples | None) -> str | None:
    """`2 parts of training rows: 13 words of row 7 in candidate 3 (rules), ...`; None without any."""
    if copied is None:
        return None
    named = ", ".join(
        f"{copy.words:,} words of {copied_rows(copy)} in candidate {copy.candidate} ({copy.component})"
        for copy in copied.copies[:COPIES_NAMED]
    )
    return line(f"{counted(copied.count, 'part')} of training rows: {named}{', ...' * (copied.count > COPIES_NAMED)}")


def copied_rows(copy: CopiedExample) -> str:
    """`row 7`, `rows 7, 9`, `rows 1, 2, 3, 4, 5 and 45 more`."""
    more = copy.row_count - len(copy.rows)
    return f"row{'' if copy.row_count == 1 else 's'} {', '.join(copy.rows)}" + (f" and {more:,} more" if more else "")


def copied_table(view: RunView) -> list[tuple[str, ...]]:
    """Return a row for each copy: where it is, in which rows and how it begins; its words; how many rows have it."""
    return [
        (
            line(f"candidate {copy.candidate}, {copy.component}, {copied_rows(copy)}: {copy.text}", 300),
            f"{copy.words:,}",
            f"{copy.row_count:,}",
        )
        for copy in (view.copied.copies if view.copied is not None else [])
    ]
