"""The record of a run follows from its events alone."""

from gepa_client.journal import run_events
from tests.gepa_client.example_records import example_record


def test_a_refused_endpoint_that_is_back_is_no_longer_listed() -> None:
    record = example_record()
    for kind, url in (("refused", "http://a"), ("refused", "http://b"), ("back", "http://a")):
        record.apply(run_events.FleetChanged(kind=kind, url=url, detail="other scores", after=None))
    assert record.refused_endpoints == {"http://b": "other scores"}
