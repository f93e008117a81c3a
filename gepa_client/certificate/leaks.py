"""Leaks of rows: texts of validation and test rows in a candidate."""

from collections.abc import Iterator, Mapping, Sequence

from gepa_client.analysis.copied_text import copied_texts, nearly_copied_texts, strings_in
from gepa_client.certificate.evidence import CertificatePart
from gepa_client.journal.history import RecordedRow, shared_rows

NEARBY = 200
"""Characters beside a copied text in which another text of its row counts as copied with it, such as its answer."""

LISTED = 100
"""Leaks that are listed; `Leaks.rows` counts all rows."""


class Leak(CertificatePart):
    """A text of a row in a component. `line`: where it begins, from 1. `words`: how many are copied.

    `verbatim`: the words are copied in one run, not nearly. `answer`: another text of the row stands beside them.
    """

    split: str
    row: str
    component: str
    line: int
    words: int
    verbatim: bool
    answer: bool


class Leaks(CertificatePart):
    """Leaks in a candidate. `searched`: how many rows have known contents, by split; `rows`: how many rows leak.

    `shared`: how many test rows are equal to training rows (`train`) and to validation rows (`val`), apart from white
    space and the order of keys.
    """

    searched: dict[str, int]
    rows: int
    listed: list[Leak]
    shared: dict[str, int]

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self.rows or sum(self.shared.values()))


def find_leaks(texts: Mapping[str, str], seed: Mapping[str, str], splits: Mapping[str, Sequence[RecordedRow]]) -> Leaks:
    """Return the texts of rows that the candidate `texts` contains, and that its `seed` does not.

    `splits`: all rows of the run; training rows may stand in a text, but not among the test rows.
    """
    known = list(seed.values())
    sealed = {split: rows for split, rows in splits.items() if split != "train"}
    leaks = [
        leak
        for split, rows in sealed.items()
        for component, text in texts.items()
        for leak in _in_component(split, rows, component, text, known)
    ]
    return Leaks(
        searched={split: sum(row.data is not None for row in rows) for split, rows in sealed.items()},
        rows=len({(leak.split, leak.row) for leak in leaks}),
        listed=leaks[:LISTED],
        shared=shared_rows(splits),
    )


def _in_component(
    split: str, rows: Sequence[RecordedRow], component: str, text: str, known: Sequence[str]
) -> Iterator[Leak]:
    contents = [(row.id, row.data) for row in rows]
    data = dict(contents)
    [copies] = copied_texts([text], contents, known)
    whole = {row: copy for copy in reversed(copies) for row in copy.rows}  # the longest of each row
    near = nearly_copied_texts(text, ((row, content) for row, content in contents if row not in whole), known)
    for row, copy in {**whole, **{copy.rows[0]: copy for copy in near}}.items():
        beside = text[max(0, copy.start - NEARBY) : copy.start] + "\n" + text[copy.end : copy.end + NEARBY]
        others = [one.strip().casefold() for one in strings_in(data[row]) if 1 < len(one.strip()) < NEARBY]
        yield Leak(
            split=split,
            row=row,
            component=component,
            line=text.count("\n", 0, copy.start) + 1,
            words=copy.words,
            verbatim=row in whole,
            answer=any(one in beside.casefold() for one in others),
        )
