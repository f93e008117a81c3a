"""Work runs as calls of a function at Modal: a real process for each, without a secret, found again by its record."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from modal_proto import api_pb2

from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.engines.modal import FUNCTION, ModalEngine
from gepa_service.jobs import control
from gepa_service.model.work import Work
from tests.gepa_service.platform import Platform, processes_of, word_repository, word_settings, working
from tests.support.modal_cloud import Cloud, found_by_this_process, loopback_modal_beside
from tests.support.waiting import until

APP = """
import modal, tempfile, threading
from pathlib import Path
from gepa_service.cli.dispatcher_and_engine import place_of
from gepa_service.jobs.attempt import run_on_node

app = modal.App()

@app.function()
def attempt(work_id, token, api, version):
    place, stop = place_of(api=api, folder=Path(tempfile.gettempdir()), sandbox="process"), threading.Event()
    place.folder.mkdir()
    running = threading.Thread(target=run_on_node, args=(work_id, token, place, version, stop))
    running.start()
    try:
        running.join()
    finally:
        stop.set()
        running.join()
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """One in which the function is deployed."""
    with loopback_modal_beside() as cloud, found_by_this_process(cloud):
        kind = api_pb2.Function.FUNCTION_TYPE_FUNCTION
        cloud.control.functions[FUNCTION] = api_pb2.Function(function_name=FUNCTION, function_type=kind)
        cloud.control.app_file = tmp_path / "app.py"
        cloud.control.app_file.write_text(APP)
        yield cloud


def test_a_further_dispatcher_finds_a_running_call_one_that_was_killed_is_continued_and_one_cancelled_ends_at_once(
    service: Platform, cloud: Cloud
) -> None:
    repo = word_repository(service.folder / "repo")
    job = service.submit(repo, word_settings(service.folder / "log", metric_calls=200, slower=10))
    with working(service.parts(), service.place(), engine="modal"):
        service.until(job, lambda found: found.progress.metric_calls > 5)
    with working(service.parts(), service.place(), engine="modal"):
        calls = service.get(job).progress.metric_calls
        found = service.until(job, lambda found: found.progress.metric_calls > calls)
        [(call_id, call)] = cloud.control.calls.items()
        assert (found.attempts, found.call) == (1, call_id)
        (work_id, _token, *where), _ = pickle.loads(call.arguments)  # noqa: S301  what the SDK wrote
        assert (work_id, where[0]) == (job.id, service.place().api)
        call.process.kill()
        found = service.until(job, lambda found: found.attempts == 2 and found.call not in (None, call_id))
        service.until(job, lambda found: found.progress.metric_calls > calls)
        control.cancel(service.of("acme"), service.journals, service.get(job), "key:ann")
        until(lambda: not processes_of(job))
        until(lambda: cloud.control.calls[str(found.call)].process.poll() is not None)
    assert (service.get(job).status, service.journals.run(job.id).status) == ("cancelled", "cancelled")
    assert len(cloud.control.calls) == 2


def test_a_call_that_does_not_stop_is_cancelled_and_one_that_is_not_known_has_ended(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gepa_service.engines.modal.GRACE_S", 0.0)
    cloud.control.app_file.write_text(
        "import modal, signal\napp = modal.App()\n\n@app.function()\ndef attempt(*_):\n    signal.pause()\n"
    )
    work = Work(tenant="acme", id="job_1", repo_url="/r", created_by="k", attempts=1)
    unknown = [work.model_copy(update={"id": f"job_{call}", "call": call}) for call in (None, "fc-unknown")]
    with ModalEngine(lambda work: (work.id,)) as engine:
        work = work.model_copy(update={"call": engine.start(work)})
    with ModalEngine(lambda work: (work.id,)) as engine:
        assert engine.ended([work, *unknown]) == unknown
        engine.stop(work)
        assert engine.ended([]) == []
        until(lambda: cloud.control.calls[str(work.call)].process.poll() is not None)
    with ModalEngine(lambda work: (work.id,)) as engine:
        assert engine.ended([work]) == [work]


def test_an_app_that_is_not_deployed_is_refused_with_what_to_do(cloud: Cloud) -> None:
    del cloud.control.functions[FUNCTION]
    with pytest.raises(EngineRefused, match="modal deploy"), ModalEngine(lambda work: (work.id,)):
        raise AssertionError("it was opened")
    work = Work(tenant="acme", id="job_1", repo_url="/r", created_by="k", attempts=1)
    with pytest.raises(EngineUnavailable, match="no function"):
        ModalEngine(lambda work: (work.id,)).start(work)
