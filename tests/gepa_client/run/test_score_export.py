"""The scores of a run reach an OpenTelemetry collector over OTLP, if the standard variable names one."""

import gzip
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gepa_client.journal.entries import EVALUATE
from gepa_client.journal.store import find_run, open_store
from tests.gepa_client.conftest import Cli, Serve
from tests.gepa_client.word_program import Script
from tests.support.http_servers import in_thread

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Collector(ThreadingHTTPServer):
    """Keeps the spans and the events that are sent to it, by their names, and the keys of the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Received)
        self.spans: list[Any] = []
        self.events: list[tuple[str, dict[str, Any], Any]] = []
        self.keys: set[str | None] = set()

    def named(self, name: str) -> list[dict[str, Any]]:
        """The attributes of the events of this name."""
        return [attributes for found, attributes, _ in self.events if found == name]


class Received(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.keys.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        if self.path == "/v1/traces":
            spans = ExportTraceServiceRequest.FromString(body).resource_spans
            self.server.spans += [span for each in spans for scope in each.scope_spans for span in scope.spans]
        else:
            logs = ExportLogsServiceRequest.FromString(body).resource_logs
            records = [record for each in logs for scope in each.scope_logs for record in scope.log_records]
            self.server.events += [(each.event_name, _plain(each.attributes), each) for each in records]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with in_thread(Collector()) as made:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{made.server_port}")
        yield made


def test_each_evaluated_example_is_exported_once_with_its_candidate(
    collector: Collector, serve: Serve, words: Script, cli: Cli, tmp_path: Path
) -> None:
    url = serve(words)
    begun = cli("optimize", url, "--max-metric-calls", 40, "--max-iterations", 1, "--check", "off")
    assert begun.status == 0, begun.stderr
    first = len(collector.named("gen_ai.evaluation.result"))
    ended = cli("resume", "last", "--max-iterations", 4)
    assert ended.status == 0, ended.stderr
    with closing(open_store(str(tmp_path / "runs" / "evolverpc.db"))) as store:
        run = find_run(store, "last").id
        entries = [each for part in store.parts(run) for each in store.entries(run, part) if each.kind == EVALUATE]

    results = collector.named("gen_ai.evaluation.result")
    assert 0 < first < len(results) == len(entries)
    assert all(isinstance(each["gen_ai.evaluation.score.value"], float) for each in results)
    assert {each["gen_ai.evaluation.score.label"] for each in results} == {"ok"}
    assert all(each["evolverpc.row.id"] and each["gen_ai.evaluation.explanation"] for each in results)
    candidates = collector.named("evolverpc.candidate")
    indexes = [each["evolverpc.candidate.index"] for each in candidates]
    assert indexes == list(range(len(indexes)))
    digests = {each["evolverpc.candidate.digest"] for each in candidates}
    assert digests <= {each["evolverpc.candidate.digest"] for each in results}
    by_id = {span.span_id: span for span in collector.spans}
    [span] = {by_id[event.span_id].name for name, _, event in collector.events if name == "gen_ai.evaluation.result"}
    assert span == "evaluate"


def test_a_collector_that_does_not_answer_delays_the_end_of_a_run_by_seconds_only(
    serve: Serve, words: Script, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    began = time.monotonic()
    ended = cli("optimize", serve(words), "--max-metric-calls", 20, "--check", "off")
    assert ended.status == 0, ended.stderr
    assert time.monotonic() - began < 40
    assert "not all scores were exported to OpenTelemetry: Failed to export" in ended.stderr + ended.stdout
