"""Diffs are read by their hunks' numbers, so that content never looks like a header."""

import pytest

from gepa_client.evolution.patches import by_file, lines, totals

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
-x
\\ No newline at end of file
diff --git a/i.png b/i.png
Binary files a/i.png and b/i.png differ
"""


def test_each_file_has_its_name_and_its_counts() -> None:
    files = [(file.name, file.added, file.removed) for file in by_file(TRICKY)]
    assert files == [("a.sql", 1, 2), ("new", 0, 0), ("gone.txt", 0, 1), ("i.png", 0, 0)]
    assert totals(TRICKY) == (1, 3)


def test_nothing_of_a_diff_is_lost() -> None:
    assert "".join(f"{line.text}\n" for line in lines(TRICKY)) == TRICKY
    assert "".join(f"{line.text}\n" for file in by_file(TRICKY) for line in file.lines) == TRICKY


@pytest.mark.parametrize("diff", ["", "\n", "nonsense", "@@ -1 +1 @@", "@@ -9999999999 +1,99999999999 @@\nx\n+y"])
def test_what_is_no_diff_is_still_shown(diff: str) -> None:
    assert "\n".join(line.text for line in lines(diff)) == diff.removesuffix("\n")
    assert len(by_file(diff)) == bool(diff)


def test_what_no_hunk_counts_is_counted_all_the_same() -> None:
    assert totals("--- a/x\n+++ b/x\n-old\n+new\n+newer\n") == (2, 1)
    assert totals("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n+newer\n") == (2, 1)


def test_diffs_that_git_did_not_write_are_split_too() -> None:
    plain = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2\n--- a/y\n+++ b/y\n@@ -0,0 +1 @@\n+3\n"
    assert [(file.name, file.added, file.removed) for file in by_file(plain)] == [("x", 1, 1), ("y", 1, 0)]
