"""Export of the scores of a run to OpenTelemetry, over OTLP, if its standard variables name a collector.

The process that drives a run exports each example that it evaluates: a span `evaluate`, and, as the semantic
conventions of GenAI have it, an event `gen_ai.evaluation.result` in that span. Each accepted candidate is an event
`evolverpc.candidate`. Nothing is imported if no collector is named.
"""

import logging
import os
import time
from importlib import import_module
from typing import Any

from evolverpc_common.redaction import Secrets
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.requests import digest_of
from gepa_client.journal.run_events import CandidateFound, Emit, Event, Warned
from gepa_client.journal.store import Store

ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
)
"""Any of these variables turns the export on; `OTEL_SDK_DISABLED=true` turns it off."""

DIGEST_SHOWN = 12
"""Digits of a candidate's digest."""

_SDK = "opentelemetry.sdk"
_EXPORTERS = "opentelemetry.exporter.otlp.proto.http"


class _Failures(logging.Handler):
    """Emits the first error that the exporters log as a warning of the run."""

    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.ERROR)
        self._emit: Emit | None = emit

    def emit(self, record: logging.LogRecord) -> None:
        if self._emit is not None:
            self._emit(Warned(message=f"not all scores were exported to OpenTelemetry: {record.getMessage()}"))
            self._emit = None


class ScoreExport:
    """The export of one run. `known`: candidates that it has already. `secrets`: are replaced in what is sent.

    Raises `ModuleNotFoundError`: the extra `otel` is not installed.
    """

    def __init__(self, run_id: str, known: int, secrets: Secrets) -> None:
        self._known = known
        trace, logs = import_module(f"{_SDK}.trace"), import_module(f"{_SDK}._logs")
        spans, records = import_module(f"{_SDK}.trace.export"), import_module(f"{_SDK}._logs.export")
        resource = import_module(f"{_SDK}.resources").Resource.create({"evolverpc.run.id": run_id})
        self._api = import_module("opentelemetry.trace")
        self._record = import_module("opentelemetry._logs").LogRecord
        self._secrets = secrets
        self._tracer_provider = trace.TracerProvider(resource=resource)
        self._tracer_provider.add_span_processor(
            spans.BatchSpanProcessor(import_module(f"{_EXPORTERS}.trace_exporter").OTLPSpanExporter())
        )
        self._logger_provider = logs.LoggerProvider(resource=resource)
        self._logger_provider.add_log_record_processor(
            records.BatchLogRecordProcessor(import_module(f"{_EXPORTERS}._log_exporter").OTLPLogExporter())
        )
        self._tracer = self._tracer_provider.get_tracer("evolverpc")
        self._logger = self._logger_provider.get_logger("evolverpc")
        self._run = self._tracer.start_span("optimize")
        self._of_run = self._api.set_span_in_context(self._run)

    def example_done(self, example: ExampleDone) -> None:
        """Export the result of an example: its row, its candidate by digest, score, status and feedback."""
        ended = time.time_ns()
        error = example.error or {}
        known = {
            "evolverpc.row.id": example.id,
            "evolverpc.candidate.digest": digest_of(example.candidate)[:DIGEST_SHOWN],
            "gen_ai.evaluation.name": "score",
            "gen_ai.evaluation.score.value": example.score,
            "gen_ai.evaluation.score.label": example.status,
            "gen_ai.evaluation.explanation": example.feedback or error.get("message"),
            "error.type": error.get("type"),
        }
        attributes = self._clean(known)
        span = self._tracer.start_span(
            "evaluate", self._of_run, attributes=attributes, start_time=ended - int(example.seconds * 1e9)
        )
        if error:
            span.set_status(self._api.StatusCode.ERROR, attributes.get("gen_ai.evaluation.explanation"))
        self._emit("gen_ai.evaluation.result", ended, self._api.set_span_in_context(span, self._of_run), attributes)
        span.end(ended)

    def observing(self, emit: Emit) -> Emit:
        """Return `emit` that also exports the candidates among the events."""

        def emit_observed(event: Event) -> None:
            if isinstance(event, CandidateFound) and event.index >= self._known:  # else a resumed run replays it
                self._candidate_found(event)
            emit(event)

        return emit_observed

    def _candidate_found(self, event: CandidateFound) -> None:
        known = {
            "evolverpc.candidate.index": event.index,
            "evolverpc.candidate.digest": digest_of(event.texts)[:DIGEST_SHOWN],
            "evolverpc.candidate.score": event.score,
            "evolverpc.candidate.parents": list(event.parents),
            **{f"evolverpc.candidate.text.{name}": text for name, text in event.texts.items()},
        }
        self._emit("evolverpc.candidate", time.time_ns(), self._of_run, self._clean(known))

    def close(self) -> None:
        """Send what is queued; wait for a collector as long as `OTEL_EXPORTER_OTLP_TIMEOUT` states, else 10 s."""
        self._run.end()
        self._tracer_provider.shutdown()
        self._logger_provider.shutdown()

    def _emit(self, name: str, at: int, context: Any, attributes: dict[str, Any]) -> None:
        self._logger.emit(self._record(timestamp=at, context=context, event_name=name, attributes=attributes))

    def _clean(self, known: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in known.items() if value is not None}
        cleaned: dict[str, Any] = self._secrets.redact(given)
        return cleaned


def score_export(store: Store, run_id: str, secrets: Secrets, emit: Emit) -> ScoreExport | None:
    """Return the export of a run that begins, or is resumed; None if no collector is named.

    A missing package is a warning, by `emit`: the run does not need the export. Raises: as `Store.candidates`.
    """
    if not any(map(os.environ.get, ENDPOINTS)) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        export = ScoreExport(run_id, len(store.candidates(run_id)), secrets)
    except ModuleNotFoundError as error:
        emit(Warned(message=f"scores are not exported to OpenTelemetry: {error}; pip install '.[otel]' adds it"))
        return None
    logging.getLogger("opentelemetry.exporter").addHandler(_Failures(emit))
    return export
