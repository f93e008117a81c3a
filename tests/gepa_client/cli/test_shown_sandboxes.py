"""What becomes of sandboxes, in words."""

import pytest

from gepa_client.cli.views.sandboxes_view import during
from sandbox_runtime.pool import PoolEvent


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (PoolEvent("not_freed", 1, 2, "a process stays", id="s1"), "not all of sandbox s1 could be freed"),
        (PoolEvent("not_freed", 0, 2, "2 did not end within 30 s"), "not all sandboxes could be freed"),
        (PoolEvent("unasked", 1, 2, "no token", id="s1"), "sandbox s1 refuses its token"),
    ],
)
def test_what_is_left_or_refused_is_not_told_as_a_failed_start(event: PoolEvent, told: str) -> None:
    words = during(event)
    assert told in words
    assert event.detail in words
    assert ("gepa-client sandboxes --sweep" in words) == (event.kind == "not_freed")
