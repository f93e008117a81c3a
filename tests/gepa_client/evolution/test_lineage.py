"""The history in a prompt: the changes of the candidate's line, those tried on it, and the outcome of each."""

import pytest

from gepa_client.evolution.code_reflection import change_request
from gepa_client.evolution.lineage import Lineage
from gepa_client.journal.answer_entries import CommitGraph, MutationEntry
from protocol.code import GIT_BRANCH, git_branch

SEED, FIRST, SECOND, OTHER, JOINED = (digit * 40 for digit in "01234")
LOG = "E   assert".rjust(1500)


def at(commit):
    return {GIT_BRANCH: git_branch("b", commit), "rules": "r"}


def made(parent, commit, *, other=None, added=(), removed=(), bundle="b"):
    applied = {
        "candidate": at(commit), "commit": commit, "parent": parent, "diff": "", "files": [], "summary": "",
        "bundle": bundle and f"{bundle}{commit[0]}",
        "components_added": list(added), "components_removed": list(removed),
    }  # fmt: skip
    kind = "merge" if other else "change_request"
    return MutationEntry(kind=kind, request=f"make {commit[0]}", parent=parent, other=other, applied=applied)


def rejected(parent, request):
    why = {"stage": "check", "reason": "1 failed", "log_tail": f"begun{LOG}"}
    return MutationEntry(kind="change_request", request=request, parent=parent, rejected=why)


def ledger(*entries):
    commits = CommitGraph()
    lineage = Lineage(commits)
    for entry in entries:
        commits.add(entry)
        lineage.add(entry)
    return commits, lineage


def keep(lineage, index, commit):
    lineage.on_valset_evaluated({"candidate": at(commit), "candidate_idx": index})


def test_history_holds_the_line_and_what_was_tried_on_it():
    known = made(SEED, FIRST), rejected(FIRST, "break it"), made(FIRST, SECOND), made(SEED, OTHER)
    _, lineage = ledger(*known, made(FIRST, JOINED))  # the last one has no outcome yet
    lineage.evaluated(at(SEED), at(FIRST), 0.25, 0.5)
    keep(lineage, 1, FIRST)
    lineage.evaluated(at(FIRST), {**at(FIRST), "rules": "another text"}, 0.5, 1.0)
    lineage.evaluated(at(FIRST), at(SECOND), 0.5, 0.5)
    keep(lineage, 2, OTHER)
    assert lineage.history(at(FIRST)) == [
        {"request": "make 1", "outcome": "accepted", "score": 0.5, "parent_score": 0.25},
        {"request": "break it", "outcome": "rejected", "stage": "check", "reason": f"1 failed\n{LOG}"},
        {"request": "make 2", "outcome": "not_better", "score": 0.5, "parent_score": 0.5},
    ]
    text = lineage.as_text(at(FIRST))
    assert "make 1\nOutcome: accepted, part of the code above (mean score 0.25 before, 0.5 after)" in text
    assert f"break it\nOutcome: rejected at the stage `check`: 1 failed\n{LOG}" in text
    assert "make 3\nOutcome: accepted for another candidate" in text
    assert lineage.index(at(OTHER)) == 2
    lineage.lost(at(SECOND))
    assert "make 2\nOutcome: better on these rows, worse on others, dropped" in lineage.as_text(at(FIRST))
    for number in range(20):
        lineage.add(rejected(FIRST, f"try {number}"))
    assert [past["request"] for past in lineage.history(at(FIRST))] == [f"try {number}" for number in range(20)]


def test_bundles_come_parents_first_and_all_or_none():
    commits, _ = ledger(
        made(SEED, FIRST), made(FIRST, SECOND), made(SEED, OTHER), made(SECOND, JOINED, other=OTHER)
    )  # fmt: skip
    assert [commit for commit, _ in commits.leading_to(JOINED)] == [FIRST, SECOND, OTHER, JOINED]
    assert commits.leading_to(SEED) == []
    assert commits.ancestry(at(JOINED)) == {SEED, FIRST, SECOND, OTHER, JOINED}
    holed, _ = ledger(made(SEED, FIRST, bundle=None), made(FIRST, SECOND))
    assert holed.leading_to(SECOND) == []


def test_what_a_commit_leaves_unused_stays_so_on_its_line_until_it_is_added_again():
    commits, _ = ledger(
        made(SEED, FIRST, removed=["rules"]), made(FIRST, SECOND), made(SECOND, OTHER, added=["rules"])
    )  # fmt: skip
    unused = [commits.unused(at(commit)) for commit in (SEED, FIRST, SECOND, OTHER)]
    assert unused == [set(), {"rules"}, {"rules"}, set()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Add a step.", ("Add a step.", None)),
        ("Location: a.py, solve\n\nAdd a step.\nAnd test it.", ("Add a step.\nAnd test it.", "a.py, solve")),
        ("location: a.py", ("location: a.py", None)),
        ("Location:\nAdd.", ("Location:\nAdd.", None)),
    ],
)
def test_a_request_may_begin_with_where_it_belongs(text, wanted):
    assert change_request(text) == wanted
