"""What the page gets of a proposal: the first rows of its minibatch, or all of them."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gepa_client.analysis.proposals import ROWS_SHOWN, ProposalHistory
from gepa_client.journal.store import open_store
from gepa_client.page.proposal_answers import proposal
from tests.gepa_client.conftest import Ran
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script, rows


def test_a_proposal_has_the_first_rows_of_its_minibatch_or_all_of_them(
    serve: Callable[[Script], str], cli: Callable[..., Ran], tmp_path: Path
) -> None:
    script = Script(datasets={"train": rows(ROWS_SHOWN + 2), "val": rows(4, 100)})
    limits = ("--max-metric-calls", 8, "--reflection-minibatch-size", ROWS_SHOWN + 2)
    ended = cli("optimize", serve(script), "--no-check", *limits)
    assert ended.status == 0, ended.stdout + ended.stderr
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        run = store.run(only_run(tmp_path).name)
        at = next(iter(ProposalHistory(store, run, store.candidates(run.id)).numbers))
        first = proposal(store, run.id, at, None)
        whole = proposal(store, run.id, at, None, all_rows=True)
    assert (first.size, len(first.rows)) == (ROWS_SHOWN + 2, ROWS_SHOWN)
    assert len(whole.rows) == whole.size
    assert whole.rows[:ROWS_SHOWN] == first.rows
    records = [found.prompts[0].records for found in (first, whole)]
    assert [found.text.count("Feedback") for found in records if found is not None] == [ROWS_SHOWN, ROWS_SHOWN + 2]
