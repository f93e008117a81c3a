"""The servers that the settings name, before anything is known of them."""

from gepa_client.fleet.endpoints_file import Address, read_roster
from gepa_client.settings.loading import SettingsError
from gepa_client.settings.run_config import RunConfig


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
