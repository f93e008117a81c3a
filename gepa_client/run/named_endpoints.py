"""The servers that the settings name, before anything is known of them."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from evolverpc_common.redaction import secrets_of
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import Refused
from gepa_client.fleet.endpoints_file import Address, read_roster
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.secrets import without_secrets
from gepa_client.transport.address import find_token


def endpoints(config: RunConfig) -> list[Address]:
    """Those of `url` in their order, then those of the fleet file, at least one in all.

    Raises:
        SettingsError: the fleet file names none, and neither does `url`.
        Refused: the fleet file cannot be read.
    """
    insecure = config.allow_insecure
    found = [Address(url, token_file=config.token_file, allow_insecure=insecure) for url in config.url]
    if config.fleet is not None:
        found += read_roster(config.fleet, allow_insecure=insecure)
    if not found:
        raise SettingsError(f"the fleet file {config.fleet} names no server, and no URL is given")
    return found


def scorers(config: RunConfig) -> list[Address]:
    """Those of `score_with`; none where the program's own server gives the scores."""
    return [
        Address(url, token_file=config.score_token_file, allow_insecure=config.allow_insecure)
        for url in config.score_with
    ]


def known_secrets(config: RunConfig, store: str) -> list[str]:
    """From the environment, from the settings and the files of tokens they name, from the address of the store.

    A token whose file cannot be used now is not among them: whoever uses it later adds it first.

    Raises:
        SettingsError: no server is named. Refused: the fleet file cannot be read.
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
    proxies = {address.proxy_token_file for address in addresses} - {None}
    for file in {address.token_file for address in addresses} | proxies:
        try:
            token = find_token(None, file)
        except Refused:
            continue  # as an endpoint that does not answer: its fleet tells of it, and tries again
        if token is not None:
            yield token


def _password(store: str) -> Iterator[str]:
    """As it is written in a URL, and as it is meant."""
    written = urlsplit(store).password if "://" in store else None
    if written:
        yield from {written, unquote(written)}
