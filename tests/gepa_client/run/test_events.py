"""Events are the same on every way out."""

from gepa_client.journal.run_events import StepFailed, from_json
from tests.gepa_client.story import NASTY, candidate, started


def test_events_survive_the_way_through_json() -> None:
    for event in (started(), candidate(1, 0.5, [0], NASTY, 1, 9), StepFailed(iteration=1, step="s", message=NASTY)):
        assert from_json(event.model_dump_json()) == event
