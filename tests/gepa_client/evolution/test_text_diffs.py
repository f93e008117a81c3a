"""Diffs are read by their hunks' numbers, so that content never looks like a header; words that differ are found."""

import itertools
import random

import pytest

from gepa_client.evolution.text_diffs import changed_words, lines, totals

TRICKY = """diff --git a/a.sql b/a.sql
index 1..2 100644
--- a/a.sql
+++ b/a.sql
@@ -1,3 +1,2 @@
--- a comment that goes
-++ x
+++ b/that.comes
 same
diff --git a/old b/new
similarity index 100%
rename from old
rename to new
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
--- x
\\ No newline at end of file
diff --git a/i.png b/i.png
Binary files a/i.png and b/i.png differ
"""


def test_nothing_of_a_diff_is_lost_and_its_lines_are_counted() -> None:
    assert "".join(f"{line.text}\n" for line in lines(TRICKY)) == TRICKY
    assert totals(TRICKY) == (1, 3)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("pink", "pink teal", [("same", "pink"), ("add", " teal")]),
        ("a b c d", "a x y c d", [("same", "a "), ("del", "b"), ("add", "x y"), ("same", " c d")]),
        ("Be kind.\nEnd\n", "Be very kind.\nEnd\n", [("same", "Be"), ("add", " very"), ("same", " kind.\nEnd\n")]),
        ("one two three", "four five six", [("del", "one two three"), ("add", "four five six")]),
        ("", "new", [("add", "new")]),
        ("", "", []),
    ],
)
def test_the_words_that_differ_are_found(before: str, after: str, words: list[tuple[str, str]]) -> None:
    assert [(piece.kind, piece.text) for piece in changed_words(before, after)] == words


@pytest.mark.parametrize("seed", range(10))
def test_changed_words_hold_both_texts(seed: int) -> None:
    chosen = random.Random(seed)
    before, after = (
        "".join(chosen.choice(("a", "b", " ", "\n", "word", ", ", "é")) for _ in range(chosen.randrange(300)))
        for _ in range(2)
    )
    words = changed_words(before, after)
    assert "".join(piece.text for piece in words if piece.kind != "del") == after
    assert "".join(piece.text for piece in words if piece.kind != "add") == before
    assert all(one.kind != two.kind and one.text for one, two in itertools.pairwise(words))
