"""Example run records built from events, for tests of every view of a run."""

from gepa_client.analysis.explanation import Change, Explanation, MovedRows, paired_scores
from gepa_client.analysis.proposals import (
    ComparedRow,
    Excerpt,
    Proposal,
    RowResult,
    TextChange,
    marked_texts,
    text_changes,
)
from gepa_client.evolution.patches import Words
from gepa_client.journal.run_events import (
    Budget,
    CandidateFound,
    Event,
    Mutated,
    MutationRejected,
    Phase,
    Progress,
    Started,
)
from gepa_client.report.record import RunRecord
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, git_branch

NASTY = "\x1b[2J[red]x[/]</pre><img src=x onerror=alert(1)>\u202e```"


def started(**given: object) -> Started:
    facts = {
        "run_id": "r1",
        "store": "runs/evolverpc.db",
        "resumed": False,
        "url": "http://127.0.0.1:1",
        "program": "tickets",
        "program_version": None,
        "server": "gepa-server 1 (python)",
        "components": ["rules"],
        "splits": {"train": 30, "val": 12},
        "max_metric_calls": 3000,
        "proposer": "the program",
        "config": {},
        "hash_seed": "0",
    }
    return Started.model_validate(facts | given)


def candidate(index: int, score: float, parents: list[int], text: str, best: int, calls: int) -> CandidateFound:
    return CandidateFound(
        seconds=index, index=index, parents=parents, iteration=index, score=score, texts={"rules": text},
        front=[best], best=best, metric_calls=calls,
    )  # fmt: skip


def example_record(*more: Event) -> RunRecord:
    record = RunRecord()
    for event in (
        started(),
        Phase(phase="seed"),
        candidate(0, 0.25, [], "a\nb", 0, 12),
        Progress(evaluated=12, in_flight=8, seconds=1.0),
        Phase(phase="optimizing", seconds=1.0),
        candidate(1, 0.5, [0], "a\nc", 1, 60),
        candidate(2, 0.75, [0, 1], "a\nc\nd", 2, 110),
        Budget(metric_calls=110, seconds=3.0),
        Progress(evaluated=112, in_flight=5, seconds=3.0),
        *more,
    ):
        record.apply(event)
    return record


COMMITS = ("0" * 40, "1" * 40, "2" * 40)


def mutated(number: int, **given: object) -> Mutated:
    """A change of candidate 0's code that was made."""
    facts = {
        "number": number,
        "kind": "change_request",
        "parents": [0],
        "parent_branch": git_branch("main", COMMITS[0]),
        "request": f"make it {number} times better",
        "branch": f"evolve/r1/{number}",
        "commit": COMMITS[1],
        "files": ["program.py"],
        "lines_added": 1,
        "lines_removed": 1,
        "summary": "as asked",
        "diff": "--- a/program.py\n+++ b/program.py\n@@ -1 +1 @@\n-old\n+new\n",
    }
    return Mutated.model_validate(facts | given)


def refused(number: int, **given: object) -> MutationRejected:
    """The same, refused by the server."""
    facts = mutated(number).model_dump(include={"number", "kind", "parents", "parent_branch", "request", "diff"})
    return MutationRejected.model_validate(facts | {"stage": "check", "reason": "pytest ended with 1"} | given)


def code_candidate(index: int, commit: str, text: str, *, added: str = "{}") -> CandidateFound:
    """Candidate `index`, from the one before it, with code."""
    texts = {"rules": text, GIT_BRANCH: git_branch(f"evolve/r1/{index}", commit), ADDED_COMPONENTS: added}
    return CandidateFound(
        index=index, parents=[index - 1] if index else [], iteration=index, score=index / 4, texts=texts,
        front=[index], best=index, metric_calls=index * 12,
    )  # fmt: skip


def code_record(*more: Event) -> RunRecord:
    """Candidate 1 changed the seed's code, 2 the texts of 1; change 5 was made and dropped, 6 refused."""
    record = RunRecord()
    for event in (
        started(evolve="both"),
        code_candidate(0, COMMITS[0], "a"),
        mutated(4),
        code_candidate(1, COMMITS[1], "a"),
        mutated(5, commit=COMMITS[2], request="the one that did not help"),
        refused(6, log_tail="E  assert 1 == 2"),
        code_candidate(2, COMMITS[1], "b", added='{"tone": "kind"}'),
        *more,
    ):
        record.apply(event)
    return record


def explanation(record: RunRecord, text: str = "a value") -> Explanation:
    """Every candidate of the record as a step on the way, with `text` wherever a program or a model may write."""
    value = Excerpt(text, 7)
    result = RowResult(text, 0.5, value, value, value, value, value)
    other = RowResult(text, 0.75, Excerpt(f"another {text}"), value, value, None, value)
    row = ComparedRow(text, value, result, other)
    proposal = Proposal(
        number=15, parent=0, components=(text,), size=9, rows=(row,), before=1.0, after=2.0,
        records={text: ({text: value},)}, answers={text: value}, texts=(TextChange(text, (Words("add", text),)),),
        mutation=None, candidate=None, outcome="rejected", why=text,
    )  # fmt: skip
    seed, best = record.candidates[0], record.candidates[-1]

    def change(index: int, against: int) -> Change:
        found, before = record.candidates[index], record.candidates[against]
        return Change(
            candidate=index, parents=tuple(found.parents), against=against, iteration=index,
            metric_calls=found.metric_calls, scores=paired_scores([before.score, 1.0], [found.score, 0.5]),
            texts=text_changes(before.texts, found.texts), code=None, better=MovedRows(9, (row,)),
            worse=MovedRows(1, (row,)), same=MovedRows(2, (row,)), reason=proposal,
        )  # fmt: skip

    return Explanation(
        best=best.index, texts=marked_texts(seed.texts, best.texts), overall=change(best.index, 0),
        steps=tuple(change(found.index, found.parents[-1]) for found in record.candidates[1:]), steps_omitted=0,
        test=None, others=(proposal,), others_omitted=3, proposed=9, kept=2,
    )  # fmt: skip
