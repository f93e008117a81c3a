"""The secret values that a run is given: whatever turns up of them is not written into its journal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gepa_client.fleet import Address
from gepa_client.journal.redact import secrets_of
from gepa_client.run.config import RunConfig
from gepa_client.run.endpoints import endpoints, scorers
from gepa_client.run.secrets import without_secrets


def known_secrets(config: RunConfig) -> list[str]:
    """From the environment, from the settings, and from the files of tokens they name."""
    values = config.model_dump(mode="json")
    inside = [text for key, value in values.items() for text in _left_out(value, without_secrets(key, value))]
    return [*secrets_of(), *inside, *_tokens([*endpoints(config), *scorers(config)])]


def _left_out(value: Any, recorded: Any) -> Iterator[str]:
    """The texts in `value` that its recorded form leaves out."""
    if isinstance(value, dict) and isinstance(recorded, dict):
        for key, part in value.items():
            yield from _left_out(part, recorded[key])
    elif isinstance(value, list) and isinstance(recorded, list):
        for part, other in zip(value, recorded, strict=True):
            yield from _left_out(part, other)
    elif isinstance(value, str) and value != recorded:
        yield value


def _tokens(addresses: list[Address]) -> Iterator[str]:
    for file in {address.token_file for address in addresses if address.token_file is not None}:
        if Path(file).is_file():
            yield Path(file).read_text(encoding="utf-8").strip()
