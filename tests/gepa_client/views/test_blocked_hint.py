"""What a user reads whose program, in the process that called `optimize`, stopped answering."""

import pytest

from gepa_client.journal.run_events import FleetChanged
from gepa_client.report.calling_program import blocked_hint, by_typescript
from gepa_client.report.event_words import event_line

LOST = "ConnectionLost: no answer from http://127.0.0.1:1/rpc within 19.1 s"


@pytest.mark.parametrize(("error", "hinted"), [(LOST, True), ("ConnectionLost: cannot connect", False), ("", False)])
def test_a_program_that_does_not_answer_is_hinted_to_block_its_event_loop(error: str, hinted: bool) -> None:
    waiting = FleetChanged(kind="waiting", url=None, detail=f"no endpoint is left; last error: {error}", after=600.0)
    assert blocked_hint(error) == ""
    assert "isolated" not in event_line(waiting).text
    token = by_typescript.set(True)
    try:
        assert ("`isolated: true`" in blocked_hint(error)) is hinted
        assert ("`isolated: true`" in event_line(waiting).text) is hinted
    finally:
        by_typescript.reset(token)
