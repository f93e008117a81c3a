"""The journal route: a token opens the run of its job alone, and no request makes it fail."""

import json
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from gepa_client.errors import ClaimLost, JournalError, NoSuchRun, RunExists
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.http_messages import METHODS, dumped
from gepa_client.journal.http_store import HttpStore
from gepa_service.model.work import Work
from tests.gepa_service.platform import Platform
from tests.support.http_servers import in_thread


def test_a_token_opens_the_run_of_its_job_alone_until_another_attempt_begins(service: Platform) -> None:
    own, other = service.begun("acme"), service.begun("rival")
    token = service.folder / "token"
    token.write_text(service.tokens.issue(own))
    with closing(HttpStore(service.api, token_file=token)) as store:
        assert store.run(own.id).config == {"of": "acme"}
        for run_id in (other.id, "absent", "../x", f"{own.id}/../{other.id}", ""):
            with pytest.raises(NoSuchRun):
                store.run(run_id)
        body = dumped({"run": StoredRun(id="another", config={})})
        assert post(service, own, f"/job/{own.id}/journal/create", body).status_code == 404
        with pytest.raises(JournalError):
            store.runs()
        with pytest.raises(RunExists):
            store.create(store.run(own.id))
        service.records.replace(service.get(own).model_copy(update={"attempts": 2}))
        with pytest.raises(ClaimLost, match="refuses the token"):
            store.run(own.id)
        token.write_text(service.tokens.issue(service.get(own)))
        assert store.run(own.id).config == {"of": "acme"}


WRONG: tuple[Any, ...] = (
    None,
    {"colour": 1},
    {"part": {"$gt": ""}},
    {"part": 1, "start": "x"},
    {"part": "search", "start": 2**70, "limit": -(2**70), "number": 2**70},
    {"owner": "", "rows": [{"part": "a", "number": 2**70, "kind": "", "digest": "", "about": "", "answer": "\ud800"}]},
    {"owner": "", "rows": [{"attempt": 1, "outcome": []}, {"row": "nothing"}, 7]},
    {"owner": "", "changes": {"status": {"$set": 1}, "id": "y"}},
    {"part": "search", "numbers": [2**70, -1]},
    {"part": "a\ud800\0", "kind": "\ud800"},
    {"seen": {"owner": None, "beat": 2**70}, "owner": "o", "driver": "d"},
)


def test_no_wrong_request_makes_the_route_fail(service: Platform) -> None:
    own, deep = service.begun("acme"), b"[" * 100_000
    for method in METHODS:
        for body in WRONG:
            answer = post(service, own, f"/job/{own.id}/journal/{method}", body)
            assert answer.status_code < 500, (method, body, answer.text)
            assert str(service.folder) not in answer.text, "the address of the store is not for the optimizer"
        assert post(service, own, f"/job/{own.id}/journal/{method}", deep).status_code == 400, method
    assert service.journals.run(own.id).config == {"of": "acme"}


def post(service: Platform, job: Work, path: str, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {service.tokens.issue(job)}", "Content-Type": "application/json"}
    with httpx.Client(verify=False, timeout=30) as client:  # noqa: S501  plain HTTP on loopback
        return client.post(service.api + path, content=content, headers=headers)


def test_a_request_whose_answer_is_lost_is_sent_again() -> None:
    asked = []

    class Restarted(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            if len(asked) > 1:
                self.send_response(200 if len(asked) > 2 else 503)
                self.end_headers()
                self.wfile.write(dumped({"result": {"search": 3}}))

    with (
        in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Restarted)) as server,
        closing(HttpStore(f"http://127.0.0.1:{server.server_port}", patience_s=20.0)) as store,
    ):
        assert store.parts("a") == {"search": 3}
    assert asked == ["/job/a/journal/parts"] * 3
