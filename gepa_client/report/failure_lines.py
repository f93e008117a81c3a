"""Failed examples in words, for the terminal and both reports."""

from evolverpc_common.display_text import line
from gepa_client.journal.run_events import FailedExamples, FailureGroup

LONGEST = 20_000

NAMED = 10
"""Rows and candidates of a group that are named."""


def fact(failed: FailedExamples) -> str:
    """`6 of 60 evaluations: 5 KeyError, 1 timeout`; texts as they are."""
    groups = ", ".join(f"{group.count:,} {name(group)}" for group in failed.groups[:NAMED])
    return line(f"{failed.failed:,} of {failed.evaluated:,} evaluations: {groups}")


def name(group: FailureGroup) -> str:
    """The exception's type; a timeout is called that, with its type if it has another."""
    if group.status == "program_error":
        return group.type
    return "timeout" if group.type.lower() in ("timeout", "timeouterror") else f"timeout ({group.type})"


def where(group: FailureGroup, named: int = NAMED) -> str:
    """`5 examples; on 3 rows: val 1, val 4, train 1; by candidates: 0 (4 times), 2 (once)`."""
    rows = ", ".join(group.rows[:named]) + (", ..." if group.row_count > min(named, len(group.rows)) else "")
    times = [
        f"{candidate} ({'once' if count == 1 else f'{count:,} times'})" for candidate, count in group.candidates.items()
    ]
    by = ", ".join(times[:named]) + (", ..." if len(times) > named else "")
    return line(
        f"{_count(group.count, 'example')}; on {_count(group.row_count, 'row')}: {rows}; "
        f"by {'candidate' if len(times) == 1 else 'candidates'}: {by}",
        LONGEST,
    )


def first(group: FailureGroup) -> str:
    """The first one: row, candidate and message, with its traceback on further lines."""
    told = f"the first: row {group.row}, candidate {group.candidate}: {group.type}: {group.message}"
    return f"{told}\n{group.traceback.rstrip()}" if group.traceback else told


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
