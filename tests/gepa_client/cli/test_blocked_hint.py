"""The hint of a check whose program, in the process that called `optimize`, stopped answering."""

import pytest

from gepa_client.check.check_report import CheckedExample, CheckReport
from gepa_client.cli.commands.check import blocked_hint
from gepa_client.cli.views.option_names import camel_case, options_named

LOST = "ConnectionLost: no answer from http://127.0.0.1:1/rpc within 19.1 s"


@pytest.mark.parametrize(("error", "hinted"), [(LOST, True), ("ConnectionLost: cannot connect", False), (None, False)])
def test_a_program_that_does_not_answer_is_hinted_to_block_its_event_loop(error: str | None, hinted: bool) -> None:
    lost = CheckedExample(row=0, id="0", status="infra_error", score=None, seconds=0.0, error=error)
    report = CheckReport(url="http://127.0.0.1:1/rpc", steps=[], examples=[lost])
    assert blocked_hint(report) == ""
    with options_named(camel_case):
        hint = blocked_hint(report)
    assert ("`isolated: true`" in hint) is hinted
