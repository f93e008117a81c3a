"""Work runs on a real Ray cluster, by its own arguments: without a secret, a database or a dispatcher that lives on."""

import importlib.util
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version as version_of
from pathlib import Path

import pytest

from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.engines.ray_engine import RayEngine
from gepa_service.jobs import control
from gepa_service.jobs.attempt import run_on_node
from gepa_service.model.work import Work
from gepa_service.records import new_id
from tests.gepa_service.engines.ray_cluster import RayCluster, ray_cluster
from tests.gepa_service.platform import Platform, processes_of, word_repository, word_settings, working
from tests.support.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as made:
        yield made


@pytest.fixture(autouse=True)
def variables(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)


def test_a_job_on_ray_is_not_disturbed_by_the_end_of_its_dispatcher_and_a_cancelled_one_ends_at_once(
    service: Platform, cluster: RayCluster
) -> None:
    repo = word_repository(service.folder / "repo")
    other = service.submit(repo, word_settings(service.folder / "other", metric_calls=400, slower=30))
    job = service.submit(repo, word_settings(service.folder / "log", slower=16))
    with working(service.parts(), service.place(), engine=cluster.address):
        service.until(other, lambda found: found.progress.metric_calls > 5)
        service.until(job, lambda found: found.progress.metric_calls > 5)
    assert service.get(job).status == "running"
    begun = time.monotonic()
    control.cancel(service.of("acme"), service.journals, service.get(other), "key:ann")
    until(lambda: not processes_of(other))
    assert time.monotonic() - begun < 10
    with working(service.parts(), service.place(), engine=cluster.address):
        ended = service.ended(job)
    assert (ended.status, ended.attempts) == ("completed", 1), f"{ended!r}\n{service.log(job)}"


def unable_to_end(_stop: threading.Event) -> None:
    """An attempt during which its node loses the cluster."""
    import ray

    def fails(*_: object) -> None:
        raise RuntimeError("the cluster is away")

    ray.kill = fails


def test_an_attempt_that_has_ended_runs_no_longer_though_the_cluster_cannot_be_asked(cluster: RayCluster) -> None:
    work = Work(tenant="acme", id=new_id("job"), repo_url="/r", created_by="k", attempts=1)
    with RayEngine(cluster.address, unable_to_end, lambda _: ()) as engine:

        def answered(call: Callable[[], object]) -> object:
            with suppress(EngineUnavailable):  # a busy machine answers late; each call may be repeated
                return call()
            return None

        until(lambda: answered(lambda: [engine.start(work)]), 60)
        until(lambda: answered(lambda: engine.ended([work])), 60)


def test_a_killed_actor_a_killed_caller_and_a_cluster_that_is_away_cost_at_most_an_attempt(
    service: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = word_repository(service.folder / "repo")
    with ray_cluster() as cluster:
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        with working(service.parts(), service.place(), engine=cluster.address):
            job = service.submit(repo, word_settings(service.folder / "log", slower=10))
            service.until(job, lambda found: found.progress.metric_calls > 5)
            for caller in multiprocessing.active_children():
                caller.kill()
            calls = service.get(job).progress.metric_calls
            service.until(job, lambda found: found.progress.metric_calls > calls)
            assert service.get(job).attempts == 1
            for pid in processes_of(job):
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                if cluster.node_of(parent) is not None:
                    os.kill(parent, signal.SIGKILL)
            calls = service.get(job).progress.metric_calls
            service.until(job, lambda found: found.attempts == 2 and found.progress.metric_calls > calls)
            cluster.lose("head")
            until(lambda: not processes_of(job))
            cluster.head()
            ended = service.ended(job)
    assert (ended.status, ended.attempts) == ("completed", 3), f"{ended!r}\n{service.log(job)}"


def test_a_cluster_of_another_version_is_refused_with_both(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller takes itself for another version of Ray."""
    (tmp_path / "sitecustomize.py").write_text("import ray\n\nray.__version__ = '2.61.7'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    refused = RayEngine(cluster.address, run_on_node, lambda work: (work.id,))
    with pytest.raises(EngineRefused, match="Version mismatch") as raised, refused:
        raise AssertionError("it was opened")
    assert all(version in str(raised.value) for version in ("2.61.7", version_of("ray")))
