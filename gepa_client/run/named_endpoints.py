"""The endpoints that the settings name, and the secret values that a run is given."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from evolverpc_common.redaction import secrets_of
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import Refused
from gepa_client.fleet.endpoints_file import Address, read_endpoints_file
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.secrets import without_secrets
from gepa_client.transport.address import find_token


def endpoints(config: RunConfig) -> list[Address]:
    """Return the endpoints of `url` in their order, then those of the endpoints file, at least one in all.

    Raises:
        SettingsError: none is named. Refused: the file cannot be read.
    """
    insecure = config.allow_insecure
    found = [Address(url, token_file=config.token_file, allow_insecure=insecure) for url in config.url]
    if config.fleet is not None:
        found += read_endpoints_file(config.fleet, allow_insecure=insecure)
    if not found:
        raise SettingsError(f"the fleet file {config.fleet} names no server, and no URL is given")
    return found


def scorers(config: RunConfig) -> list[Address]:
    """Return the endpoints of `score_with`; none if the program's own server scores."""
    return [
        Address(url, token_file=config.score_token_file, allow_insecure=config.allow_insecure)
        for url in config.score_with
    ]


def known_secrets(config: RunConfig, store: str) -> list[str]:
    """Return secrets from the environment, the settings, the token files they name, and the address of the store.

    The token of a file that cannot be read now is left out; the fleet adds it before it uses it.

    Raises:
        SettingsError: no server is named. Refused: the endpoints file cannot be read.
    """
    values = config.model_dump(mode="json")
    inside = [text for key, value in values.items() for text in _left_out(value, without_secrets(key, value))]
    return [*secrets_of(), *inside, *_tokens([*endpoints(config), *scorers(config)]), *_password(store)]


def _left_out(value: Any, recorded: Any) -> Iterator[str]:
    """Yield the texts in `value` that its recorded form leaves out."""
    if isinstance(value, dict) and isinstance(recorded, dict):
        for key, part in value.items():
            yield from _left_out(part, recorded[key])
    elif isinstance(value, list) and isinstance(recorded, list):
        for part, other in zip(value, recorded, strict=True):
            yield from _left_out(part, other)
    elif isinstance(value, str) and value != recorded:
        yield value


def _tokens(addresses: list[Address]) -> Iterator[str]:
    proxies = {address.proxy_token_file for address in addresses} - {None}
    for file in {address.token_file for address in addresses} | proxies:
        try:
            token = find_token(None, file)
        except Refused:
            continue  # the fleet reports it and tries again
        if token is not None:
            yield token


def _password(store: str) -> Iterator[str]:
    """Yield the password as written in the URL, and decoded."""
    written = urlsplit(store).password if "://" in store else None
    if written:
        yield from {written, unquote(written)}
