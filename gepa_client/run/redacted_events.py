"""Keeps secrets out of what a run tells: servers and models repeat what they were sent."""

from typing import Any

from pydantic import BaseModel

from evolverpc_common.redaction import Secrets
from gepa_client.journal.run_events import Emit, Event


def without(secrets: Secrets, emit: Emit) -> Emit:
    """The same `emit`, with every secret in the texts of an event replaced."""

    def told(event: Event) -> None:
        emit(event.model_copy(update={name: _clean(secrets, value) for name, value in event if name != "event"}))

    return told


def _clean(secrets: Secrets, value: Any) -> Any:
    if isinstance(value, str):
        return secrets.redact_text(value)
    if isinstance(value, dict):
        return {key: _clean(secrets, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_clean(secrets, part) for part in value]
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: _clean(secrets, part) for name, part in value})
    return value
