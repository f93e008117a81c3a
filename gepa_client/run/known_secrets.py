"""The secret values that a run is given: whatever turns up of them is not written into its journal."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from gepa_client.address import find_token
from gepa_client.fleet import Address
from gepa_client.journal.redact import secrets_of
from gepa_client.run.config import RunConfig
from gepa_client.run.endpoints import endpoints, scorers
from gepa_client.run.secrets import without_secrets


def known_secrets(config: RunConfig, store: str) -> list[str]:
    """From the environment, from the settings and the files of tokens they name, from the address of the store.

    Raises:
        Refused: a token cannot be used, or a file cannot be read, which is named.
        SettingsError: no server is named.
    """
    values = config.model_dump(mode="json")
    inside = [text for key, value in values.items() for text in _left_out(value, without_secrets(key, value))]
    return [*secrets_of(), *inside, *_tokens([*endpoints(config), *scorers(config)]), *_password(store)]


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
    for file in {address.token_file for address in addresses}:
        if (token := find_token(None, file)) is not None:
            yield token


def _password(store: str) -> Iterator[str]:
    """As it is written in a URL, and as it is meant."""
    written = urlsplit(store).password if "://" in store else None
    if written:
        yield from {written, unquote(written)}
