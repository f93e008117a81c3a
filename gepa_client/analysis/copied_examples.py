"""What the candidates of a recorded run copied word for word from its training rows."""

from gepa_client.analysis.copied_text import copied_texts
from gepa_client.evolution.names import component_texts
from gepa_client.journal.history import selection_rows
from gepa_client.journal.run_events import CopiedExample, CopiedExamples
from gepa_client.journal.store import Store

COPIES_LISTED = 100
"""Copies that are listed, the longest ones; all are counted."""

ROWS_LISTED = 5
TEXT_SHOWN = 200
"""Rows of a copy that are named, and characters of its text that are shown."""


def copied_examples(store: Store, run_id: str) -> CopiedExamples | None:
    """Return the copies that candidates have and the seed has not, each by the first candidate with it; None if none.

    Rows that the server keeps to itself are not in the store, and not looked for.
    """
    candidates = store.candidates(run_id)
    texts = [(kept.index, name, text) for kept in candidates[1:] for name, text in component_texts(kept.texts).items()]
    distinct = list(dict.fromkeys(text for *_, text in texts))
    if not distinct:
        return None
    rows = ((row.id, row.data) for row in selection_rows(store, run_id).get("train", []))
    known = component_texts(candidates[0].texts).values()
    found = dict(zip(distinct, copied_texts(distinct, rows, known), strict=True))
    copies: dict[tuple[str, str], CopiedExample] = {}
    for index, name, text in texts:
        for copy in found[text]:
            copied = text[copy.start : copy.end]
            copies.setdefault(
                (name, copied),
                CopiedExample(
                    candidate=index,
                    component=name,
                    words=copy.words,
                    text=copied[:TEXT_SHOWN],
                    rows=list(copy.rows[:ROWS_LISTED]),
                    row_count=len(copy.rows),
                ),
            )
    if not copies:
        return None
    longest = sorted(copies.values(), key=lambda copy: (-copy.words, copy.candidate))
    return CopiedExamples(
        count=len(longest),
        candidates=sorted({index for index, _, text in texts if found[text]}),
        copies=longest[:COPIES_LISTED],
    )
