"""Errors as one line of text."""

from gepa_client.errors import JournalMismatch, RecordedFailure, RunBusy, summary


def test_errors_that_are_sentences_are_shown_without_the_name_of_their_class() -> None:
    for error in (RunBusy("run r is driven by pid 1"), JournalMismatch("another run"), RecordedFailure("E: no")):
        assert summary(error) == str(error)
    assert summary(ValueError("no")) == "ValueError: no"
