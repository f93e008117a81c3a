"""Events as JSON."""

from gepa_client.journal.run_events import StepFailed, from_json
from tests.gepa_client.example_records import NASTY, candidate, started


def test_an_event_read_from_its_json_is_equal() -> None:
    for event in (started(), candidate(1, 0.5, [0], NASTY, 1, 9), StepFailed(iteration=1, step="s", message=NASTY)):
        assert from_json(event.model_dump_json()) == event
