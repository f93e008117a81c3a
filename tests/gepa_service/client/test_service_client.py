"""The Python client, over a real service: its requests, what it raises, and the stream of a job."""

from pathlib import Path

import pytest

from gepa_service.api.routes import ROUTERS
from gepa_service.api.routes.tenant import KeyRequest
from gepa_service.client import ServiceClient, ServiceProblem, ServiceUnreachable
from tests.gepa_service import serving


def test_a_refusal_is_a_problem_with_its_status_and_kind(tmp_path: Path) -> None:
    with serving.served_with_key(tmp_path, "owner") as (url, key), ServiceClient(url, key) as client:
        with pytest.raises(ServiceProblem):
            client.job("job_of/another?")
        viewer = client.create_key(KeyRequest(name="reader", role="viewer")).key
        with ServiceClient(url, viewer, tenant="other") as reading, pytest.raises(ServiceProblem, match="401"):
            reading.jobs()
        with ServiceClient(url, viewer, tenant="acme") as reading:
            assert reading.jobs(status=["running", "paused"]).items == []
            with pytest.raises(ServiceProblem) as forbidden:
                reading.create_key(KeyRequest(name="more", role="owner"))
        assert (forbidden.value.status, forbidden.value.type) == (403, "urn:evolverpc:forbidden")
        with ServiceClient(url, "grk_wrong") as unknown, pytest.raises(ServiceProblem, match="401"):
            next(unknown.follow("job_1"))


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
        if len(seen) == 2:
            return Response(status_code=429)  # it follows as many jobs as it may
        last = b'event: revoked\ndata: {}\n\nid: a-2\ndata: {"event": "job", "n": 2}\n\nevent: end\ndata: {}\n\n'
        return Response(first if len(seen) == 1 else last, media_type="text/event-stream")

    with serving.served_app(app) as url, ServiceClient(url, "key") as client:
        assert [event["n"] for event in client.follow("job_1")] == [0, 1, 2]
    assert seen == [None, "a-1", "a-1"]
