"""The scores of a job reach the operator's OpenTelemetry collector, though its optimizer has no network."""

import pytest

from gepa_service.jobs.messages import OTLP_ENDPOINT, OTLP_HEADERS
from tests.gepa_client.run.test_score_export import Collector
from tests.gepa_service.platform import Platform, word_repository, word_settings, working
from tests.support.http_servers import in_thread

KEYS = {OTLP_HEADERS: "Authorization=Bearer%20of-the-operator"}


def test_each_example_of_a_job_is_exported_with_the_key_of_the_operator(
    service: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.sandbox = "bubblewrap"
    with in_thread(Collector()) as collector:
        for name, value in {OTLP_ENDPOINT: f"http://127.0.0.1:{collector.server_port}", **KEYS}.items():
            monkeypatch.setenv(name, value)
        settings = word_settings("/dev/null", metric_calls=30)
        job = service.submit(word_repository(service.folder / "repo"), settings)
        with working(service.parts(), service.place()):
            ended = service.ended(job)
    assert ended.status == "completed", (ended.reason, service.log(job))
    results = collector.named("gen_ai.evaluation.result")
    assert len(results) >= ended.progress.metric_calls > 0
    assert {each["gen_ai.evaluation.score.label"] for each in results} == {"ok"}
    assert len(collector.named("evolverpc.candidate")) == ended.progress.candidates
    assert collector.keys == {"Bearer of-the-operator"}
