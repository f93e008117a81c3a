"""What the settings of a DSPy program come to before it is started."""

import pytest

from rpc_server.program.open_program import digest_settings
from rpc_server.settings.settings import Settings

GIVEN = {"kind": "dspy", "program": "codes.Codes", "metric": "codes.metric"}


@pytest.mark.parametrize(
    "changed",
    [
        {"metric": "codes.other"},
        *({"dspy": {name: True}} for name in ("field_descriptions", "demos", "add_format_failure_as_feedback")),
        {"dspy": {"seed": 1}},
        {"datasets": {"train": "train.csv"}},
    ],
    ids=str,
)
def test_what_changes_the_program_changes_what_is_digested(changed):
    assert digest_settings(Settings(**{**GIVEN, **changed}), None) != digest_settings(Settings(**GIVEN), None)
    assert digest_settings(Settings(**GIVEN, concurrency=3), None) == digest_settings(Settings(**GIVEN), None)
