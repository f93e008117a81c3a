"""A journal replays the recorded answers, and stops if GEPA asks for something else."""

from pathlib import Path

import pytest

from gepa_client.errors import Interrupted, JournalMismatch
from gepa_client.journal.entries import FAILURE, SEARCH, STOP, Entry
from gepa_client.journal.journal import Journal, JournaledAttempts
from gepa_client.journal.store import Store
from gepa_client.transport.calls import FailedTry
from protocol.errors import ProgramFailed
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import asking, recording, replaying, watched


def record(journal: Journal, *words: str) -> None:
    """Ask for words and record each as its own answer."""
    slots = journal.ask(asking(*words))
    journal.record(*((slot, word) for slot, word in zip(slots, words, strict=True)))
    journal.settle()


def interrupt(journal: Journal, *words: str, answered: tuple[int, ...] = ()) -> None:
    """Ask for words, record those at the positions `answered`, and stop in the middle of the request."""
    enough = Interrupted("completed", "enough")
    slots = journal.ask(asking(*words))
    with pytest.raises(Interrupted), journal.executing(slots):
        journal.record(*((slots[at], words[at]) for at in answered))
        raise enough
    journal.stop(enough)
    journal.settle()


def entries(store: Store) -> list[Entry]:
    return store.entries(RUN.id, SEARCH)


def test_another_request_at_a_number_fails_the_run_naming_both_and_where(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        with recording(store) as journal:
            record(journal, "red", "green")
        with recording(store) as journal:
            journal.ask(asking("red"))
            with pytest.raises(Interrupted) as caught:
                journal.ask(asking("blue"))
    assert caught.value.status == "failed"
    assert isinstance(caught.value.__cause__, JournalMismatch)
    for named in ("at 1 ", "word blue", "word green", f"evolverpc fork {RUN.id} --at 1"):
        assert named in caught.value.reason


def test_a_failure_is_written_only_once_gepa_asks_on(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        with recording(store) as journal:
            [slot] = journal.ask(asking("a"))
            journal.fail(slot, ProgramFailed("no such column", stage="run"))
            journal.settle()
            assert entries(store) == []
        with recording(store) as journal:  # the run ended there: it tries again
            [slot] = journal.ask(asking("a"))
            assert slot.entry is None
            journal.fail(slot, ProgramFailed("no such column", stage="run"))
            journal.ask(asking("b"))
            journal.settle()
            assert [entry.kind for entry in entries(store)] == [FAILURE]
        [slot] = replaying(store).ask(asking("a"))
    assert not slot.recorded
    assert isinstance(slot.failure, ProgramFailed)
    assert slot.failure.message == "no such column"


def test_a_stop_ends_a_replay_at_its_number_and_a_run_resumes_there_with_the_rest_of_its_batch(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        with recording(store) as journal:
            record(journal, "a")
            interrupt(journal, "b", "c", answered=(1,))
        found = [(entry.number, entry.kind) for entry in entries(store)]
        assert found == [(0, "completion"), (1, STOP), (2, "completion")]
        replay = replaying(store)
        replay.ask(asking("a"))
        with pytest.raises(Interrupted) as caught:
            replay.ask(asking("b", "c"))
        store.drop(RUN.id, SEARCH, STOP)
        with recording(store) as journal:
            assert [slot.recorded for slot in journal.ask(asking("a", "b", "c"))] == [True, False, True]
    assert (caught.value.status, caught.value.reason) == ("completed", "enough")


def test_a_replay_ends_at_the_requested_number_or_at_the_end_of_the_record(tmp_path: Path) -> None:
    with watched(tmp_path) as store:
        with recording(store) as journal:
            record(journal, "a", "b")
        replay = replaying(store, until=1)
        replay.ask(asking("a"))
        with pytest.raises(Interrupted, match="replayed up to 1"):
            replay.ask(asking("b"))
        replay = replaying(store)
        slots = replay.ask(asking("a", "b", "c"))
        with pytest.raises(Interrupted, match="the record ends here, at 2") as caught, replay.executing(slots):
            pytest.fail("nothing may be done")
    assert caught.value.status == "paused"


async def test_an_attempt_is_in_the_store_with_its_endpoint_before_it_is_sent(tmp_path: Path) -> None:
    limited = FailedTry(at=0, row="1", host="model.example", reason="429")
    with watched(tmp_path) as store, recording(store) as journal:
        [slot] = journal.ask(asking("a"))
        attempts = journal.attempts(slot, "evaluate")
        assert await attempts.start("http://a", "one", repeat=False) == f"{RUN.id}/0/1"
        [made] = store.attempts(RUN.id, SEARCH)
        assert (made.endpoint, made.instance, made.outcome) == ("http://a", "one", None)
        assert await attempts.start("http://a", "one", repeat=True) == f"{RUN.id}/0/1"
        attempts.finish("infra_error", seconds=0.5, usage={"cost_usd": 0.25}, failed=[limited])
        assert await attempts.start("http://b", "two", repeat=False) == f"{RUN.id}/0/2"
        attempts.finish("ok", unpriced=1)
        journal.settle()
        found = [(made.outcome, made.failed) for made in store.attempts(RUN.id, SEARCH)]
        assert found == [("infra_error", [limited]), ("ok", [])]
        spent = journal.spending["evaluate"]
        assert (spent.calls, spent.cost_usd, spent.unpriced) == (2, 0.25, 1)


async def test_a_later_process_gets_the_unfinished_attempt_and_continues_its_count(tmp_path: Path) -> None:
    def open_again(journal: Journal) -> JournaledAttempts:
        [slot] = journal.ask(asking("a"))
        with journal.executing([slot]):
            pass  # counts on from the attempts that were made
        assert journal.attempts(slot, "score").unfinished() is None  # that was for something else
        return journal.attempts(slot, "evaluate")

    with watched(tmp_path) as store:
        with recording(store) as journal:
            await open_again(journal).start("http://a", "one", repeat=False)
        with recording(store) as journal:
            attempts = open_again(journal)
            assert attempts.unfinished() == ("http://a", "one")
            assert await attempts.start("http://a", "one", repeat=True) == f"{RUN.id}/0/1"
        with recording(store) as journal:  # now it is nowhere to be found
            attempts = open_again(journal)
            assert attempts.unfinished() == ("http://a", "one")
            attempts.finish("lost", examples=0)
            assert await attempts.start("http://b", "two", repeat=False) == f"{RUN.id}/0/2"
            attempts.finish("ok", usage={"cost_usd": 0.25})
        with recording(store) as journal:  # its end was written, its answer was not
            attempts = open_again(journal)
            assert attempts.unfinished() == ("http://b", "two")
            await attempts.start("http://b", "two", repeat=True)
            attempts.finish("ok", usage={"cost_usd": 0.25})
            assert journal.spending.cost_usd == 0.25, "the same attempt is paid for once"
            await attempts.start("http://b", "two", repeat=False)
            attempts.finish("error", usage={"cost_usd": 0.5}, examples=0)
        with recording(store) as journal:  # it brought no answer that could be asked for
            assert open_again(journal).unfinished() is None
        found = store.attempts(RUN.id, SEARCH)
    assert [(made.attempt, made.outcome) for made in found] == [(1, "lost"), (2, "ok"), (3, "error")]
    assert [(made.usage or {}).get("cost_usd") for made in found] == [None, 0.25, 0.5]


def test_after_a_cancellation_no_request_and_no_attempt_begins(tmp_path: Path) -> None:
    with watched(tmp_path) as store, recording(store) as journal:
        [slot] = journal.ask(asking("a"))
        attempts = journal.attempts(slot, "completion")
        journal.cancel_token.cancel(Interrupted("paused", "stopped by hand"))
        for refused in (
            lambda: journal.ask(asking("b")),
            lambda: journal.executing([slot]).__enter__(),
            lambda: attempts.start_now("model"),
        ):
            with pytest.raises(Interrupted, match="stopped by hand"):
                refused()
        journal.record((slot, "it came all the same"))
        journal.settle()
        assert len(entries(store)) == 1
        assert store.attempts(RUN.id, SEARCH) == []
