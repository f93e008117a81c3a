"""A Ray cluster that is away, or would let everyone in, harms no work."""

import importlib.util
import time
from dataclasses import replace

import pytest

from evolverpc_common.network_addresses import free_port
from gepa_service.cli.dispatcher_parts import engine_of
from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.engines.ray_engine import RayEngine
from gepa_service.jobs.attempt import run_on_node
from gepa_service.jobs.shared_processes import SharedProcesses
from gepa_service.model.work import Work
from tests.gepa_service.platform import Platform

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def engine() -> RayEngine:
    return RayEngine(f"ray://127.0.0.1:{free_port()}", run_on_node, lambda work: (work.id,))


def test_a_cluster_that_asks_for_no_token_is_refused_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(EngineRefused, match="export RAY_AUTH_MODE=token"), engine():
        raise AssertionError("it was opened")


def test_secrets_are_given_to_no_other_machine_by_plain_http(service: Platform) -> None:
    place = replace(service.place(), api="http://gepa.example.org:8000")
    with pytest.raises(EngineRefused, match="plain http"):
        engine_of("ray://127.0.0.1:1", service.parts(), place, SharedProcesses(place.folder, keep_warm=False))


def test_a_cluster_that_is_away_is_reported_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    work, away = Work(tenant="acme", id="job_1", repo_url="/r", created_by="key:x", attempts=1), engine()
    try:
        begun = time.monotonic()
        with pytest.raises(EngineUnavailable, match="does not answer"):
            away.start(work)
        assert time.monotonic() - begun < 20
    finally:
        away.__exit__()
