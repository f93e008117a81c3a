"""Proposals of a run that is read while it grows."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gepa_client.journal.entries import SEARCH
from gepa_client.journal.history import entries, selection_rows
from gepa_client.journal.store import open_store
from gepa_client.page.proposal_reader import ProposalReader
from tests.gepa_client.conftest import Ran
from tests.gepa_client.run_folder import only_run
from tests.gepa_client.word_program import Script


def test_texts_of_proposals_that_the_store_has_and_the_reader_has_not_read_are_left_for_later(
    serve: Callable[[Script], str], cli: Callable[..., Ran], words: Script, tmp_path: Path
) -> None:
    ended = cli("optimize", serve(words), "--max-metric-calls", 80, "--no-check")
    assert ended.status == 0, ended.stdout + ended.stderr
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        run = store.run(only_run(tmp_path).name)
        train = selection_rows(store, run.id)["train"]
        reader = ProposalReader(store, run, store.candidates(run.id), train)
        noted = []
        for entry in entries(store, run.id, SEARCH, largest=0):
            reader.read(entry)
            noted.append([each.at for each in reader.note_made()])
    found = [numbers for numbers in noted if numbers]
    assert len(found) > 1
    assert all(len(numbers) == 1 for numbers in found)
