"""The record of a run follows from its events alone."""

from gepa_client.journal import run_events
from tests.gepa_client.example_records import example_record


def test_the_headline_is_of_test_rows_only_when_seed_and_best_were_scored_there() -> None:
    record = example_record()
    headline = record.headline()
    assert headline is not None
    assert (headline.rows, headline.seed, headline.best) == ("12 validation rows", 0.25, 0.75)
    record.apply(run_events.Tested(index=0, score=0.1, rows=40))
    assert record.headline() == headline
    record.apply(run_events.Tested(index=2, score=0.6, rows=40))
    tested = record.headline()
    assert tested is not None
    assert (tested.rows, tested.seed, tested.best) == ("40 test rows", 0.1, 0.6)


def test_a_refused_endpoint_that_is_back_is_no_longer_listed() -> None:
    record = example_record()
    for kind, url in (("refused", "http://a"), ("refused", "http://b"), ("back", "http://a")):
        record.apply(run_events.FleetChanged(kind=kind, url=url, detail="other scores", after=None))
    assert record.refused_endpoints == {"http://b": "other scores"}
