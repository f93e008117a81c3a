"""Replays of pages in the test's own process are forks."""

import pytest

from gepa_client.page import replay_follower
from tests.support.forked_client import ForkServer


@pytest.fixture(autouse=True)
def _forked_replays(monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer) -> None:
    monkeypatch.setattr(replay_follower, "subprocess", fork_server.forking_subprocess())
