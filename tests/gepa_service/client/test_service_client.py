"""The Python client, over a real service: from a repository to a promoted version, and what it raises."""

import sys
from pathlib import Path

import pytest

from gepa_service.api.routes import ROUTERS
from gepa_service.api.routes.jobs import BudgetChange, OptimizeRequest
from gepa_service.api.routes.programs import PromoteRequest
from gepa_service.api.routes.repositories import ConnectRequest
from gepa_service.api.routes.tenant import KeyRequest
from gepa_service.client import ServiceClient, ServiceProblem, ServiceUnreachable
from tests.docs import pages
from tests.gepa_service import serving
from tests.gepa_service.cli.test_up import up

pytestmark = pytest.mark.timeout(400)


def repository(folder: Path) -> Path:
    sys.path.insert(0, str(pages.ROOT / "examples" / "service"))
    try:
        import demo
    finally:
        sys.path.pop(0)
    return demo.repository_in(folder)


@pytest.mark.long
def test_a_program_is_connected_optimized_followed_and_promoted(tmp_path: Path) -> None:
    with up(tmp_path / "data") as service, ServiceClient(service["url"], service["key"]) as client:
        connected = client.connect_git(ConnectRequest(repo_url=str(repository(tmp_path / "program"))))
        request = OptimizeRequest.model_validate(
            {
                "client_id": connected.client_id,
                "trainset_path": "data/train.jsonl",
                "valset_path": "data/val.jsonl",
                "testset_path": "data/test.jsonl",
                "max_metric_calls": 832,
                "options": {"reflection_minibatch_size": 40, "candidate_selection_strategy": "current_best"},
            }
        )
        submitted = client.optimize(request, idempotency_key="once")
        assert client.optimize(request, idempotency_key="once") == submitted
        events = list(client.follow(submitted.job_id))
        assert {"job", "run", "results", "candidate"} <= {event["event"] for event in events}
        job = client.job(submitted.job_id)
        assert job.status == "completed", job
        assert client.certificate(job.job_id).verdict == "improved"
        assert client.events(job.job_id).events
        assert b"<!doctype html>" in client.report(job.job_id)
        assert job.program_id is not None
        promotion = client.promote(job.program_id, PromoteRequest())
        [active] = client.active().items
        assert active.promotion_id == promotion.promotion_id
        with pytest.raises(ServiceProblem) as refused:
            client.change_budget(job.job_id, BudgetChange(max_metric_calls=900))
        assert (refused.value.status, refused.value.type) == (409, "urn:evolverpc:wrong-status")


def test_a_refusal_is_a_problem_with_its_status_and_kind(tmp_path: Path) -> None:
    with serving.served_with_key(tmp_path, "owner") as (url, key):
        check_refusals(url, key)


def check_refusals(url: str, key: str) -> None:
    with ServiceClient(url, key) as client:
        with pytest.raises(ServiceProblem) as absent:
            client.job("job_of/another?")
        assert absent.value.status in (404, 422)
        viewer = client.create_key(KeyRequest(name="reader", role="viewer")).key
    with ServiceClient(url, viewer) as client:
        assert client.jobs(status=["running", "paused"]).items == []
        with pytest.raises(ServiceProblem) as forbidden:
            client.create_key(KeyRequest(name="more", role="owner"))
        assert (forbidden.value.status, forbidden.value.type) == (403, "urn:evolverpc:forbidden")
    with ServiceClient(url, "grk_wrong") as client, pytest.raises(ServiceProblem, match="401"):
        next(client.follow("job_1"))


def test_an_absent_service_is_unreachable_and_an_argument_that_is_not_known_is_refused() -> None:
    with ServiceClient("http://127.0.0.1:1", "key") as client:
        with pytest.raises(ServiceUnreachable):
            client.health()
        with pytest.raises(TypeError, match="limits"):
            client.jobs(limits=1)


def test_each_route_for_programs_is_an_operation() -> None:
    of_others = {"sign_in", "session", "sign_out", "sign_in_ways", "metrics", "callback", "webhook", "stream"}
    known = {each.name for router in ROUTERS for each in router.routes if each.include_in_schema}
    assert known - of_others <= {getattr(each, "__name__", "") for each in vars(ServiceClient).values()}


def test_a_stream_that_is_cut_continues_after_the_last_event_that_came() -> None:
    from fastapi import FastAPI, Request
    from fastapi.responses import Response

    app, seen = FastAPI(), []

    @app.get("/job/{job_id}/stream")
    def stream(job_id: str, request: Request) -> Response:
        seen.append(request.headers.get("last-event-id"))
        first = (
            b'id: a-0\ndata: {"event": "job", "n": 0}\n\nid: a-1\ndata: {"event": "job", "n": 1}\n\nid: a-2\ndata: {"ev'
        )
        last = b'id: a-2\ndata: {"event": "job", "n": 2}\n\nevent: end\ndata: {}\n\n'
        return Response(first if len(seen) == 1 else last, media_type="text/event-stream")

    with serving.served_app(app) as url, ServiceClient(url, "key") as client:
        assert [event["n"] for event in client.follow("job_1")] == [0, 1, 2]
    assert seen == [None, "a-1"]
