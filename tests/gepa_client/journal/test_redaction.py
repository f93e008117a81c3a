"""Known secrets are written nowhere in a journal, and GEPA sees what is written."""

from pathlib import Path

import orjson

from gepa_client.journal.entries import SEARCH
from protocol.errors import ProgramFailed
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import asking, recording, replaying, watched

SECRET = 'sk-"quoted"\\é-123456'


def test_a_secret_in_an_answer_is_gone_from_the_file_and_from_what_gepa_sees(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        with recording(store, secrets=[SECRET]) as journal:
            [slot] = journal.ask(asking("a"))
            [seen] = journal.record((slot, {"output": f"the key is {SECRET}.", "keys": {SECRET: [SECRET]}}))
        [again] = replaying(store).ask(asking("a"))
        [entry] = store.entries(RUN.id, SEARCH)
    assert seen == again.answer == {"output": "the key is [redacted].", "keys": {"[redacted]": ["[redacted]"]}}
    assert orjson.dumps(SECRET)[1:-1] not in entry.answer
    for path in tmp_path.iterdir():
        assert b"123456" not in path.read_bytes()


def test_a_secret_in_a_failure_is_not_written(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        with recording(store, secrets=["hush-hush"]) as journal:
            [slot] = journal.ask(asking("a"))
            journal.fail(slot, ProgramFailed("401 for hush-hush", stage="run", log_tail="Bearer hush-hush"))
            journal.ask(asking("b"))
        [entry] = store.entries(RUN.id, SEARCH)
    assert b"hush" not in entry.answer
    assert entry.answer.count(b"[redacted]") >= 2
