"""What settings resolve to: servers, secrets, what evolves, and the budget in metric calls."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from evolverpc_common.model_prices import PriceTable
from evolverpc_common.redaction import secrets_of
from evolverpc_common.settings.sources import SettingsError
from gepa_client.errors import ConnectionLost, Refused
from gepa_client.fleet.endpoints_file import line_address, read_endpoints_file
from gepa_client.settings.groups import Evolve, parse_secret_header
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.secret_settings import secret_parts
from gepa_client.transport.address import Address, find_token
from protocol import DiscoverResult
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, added_to, commit_of

NO_MODEL = (
    "the server changes code, and a change has to be asked for by a reflection model: give `reflection_lm`, "
    "or set `evolve` to prompts to have the prompts changed alone"
)

AUTO_CANDIDATES = {"light": 6, "medium": 12, "heavy": 18}
"""Candidates that each `auto` is meant for."""

TRIALS_PER_CANDIDATE = 5

DSPY_MINIBATCH = 35

UNKNOWN_WINDOW_TOKENS = 64_000
"""Tokens of a reflection prompt for a model whose context window is unknown."""

FULL_EVALUATION_EVERY = 5
"""Constants of DSPy's estimate, in examples and in trials; a run's own minibatch does not change them."""


def evolve_of(config: RunConfig, discovery: DiscoverResult) -> Evolve:
    """Return what a run changes, by its settings or by what the program offers.

    Raises:
        SettingsError: the program does not offer it, or another setting would have no effect.
    """
    components = discovery.program.seed_candidate
    try:
        commit_of(components)
        added_to(components)
    except ValueError as error:
        raise SettingsError(f"the server cannot be used: its {error}") from None
    offered = GIT_BRANCH in components and "mutations" in discovery.capabilities
    evolve = config.evolve or ("both" if offered else "prompts")
    texts = [name for name in components if name not in CODE_COMPONENTS]
    if evolve == "prompts":
        if config.code_template is not None:
            raise SettingsError(
                f"`reflection_prompt_template` has a prompt for {GIT_BRANCH}, but the server does not change code "
                "(start it with --allow-mutations)"
            )
        if GIT_BRANCH in components and not texts:
            raise SettingsError("the program has no prompts to change: have its code changed (`evolve` code)")
        return evolve
    if not offered:
        lack = "change code" if GIT_BRANCH in components else "name the commit that runs, nor change code"
        raise SettingsError(f"`evolve` is {evolve}, but the server does not {lack}: start it with --allow-mutations")
    if config.reflection_lm is None:
        raise SettingsError(NO_MODEL)
    return evolve


def is_deterministic(config: RunConfig, discovery: DiscoverResult) -> bool:
    """Return whether results are reused, by the settings or by what the program declares."""
    declared = discovery.program.deterministic
    return bool(declared if config.deterministic is None else config.deterministic)


def metric_call_budget(config: RunConfig, *, texts: int, train: int, val: int | None) -> int | None:
    """Return the run's limit on metric calls; None if it has none.

    `texts`: how many texts the program has, which for DSPy are its predictors. `train`, `val`: rows of each split,
    `val` None if the training rows are also used for validation. The formulas are those of `dspy.GEPA` (DSPy 3.4,
    `auto_budget` and `compile`).
    """
    if config.auto is not None:
        candidates = AUTO_CANDIDATES[config.auto]
        trials = int(max(4 * texts * math.log2(candidates), 1.5 * candidates))
        full_evaluations = 1 + (trials + 1) // FULL_EVALUATION_EVERY + 1
        rows = train if val is None else val
        return candidates * TRIALS_PER_CANDIDATE + trials * DSPY_MINIBATCH + full_evaluations * rows
    return config.max_metric_calls


def with_reflection_model(config: RunConfig) -> RunConfig:
    """Return a new run's settings with what its reflection model can take, unless they state it.

    A prompt may have half of the model's window: the rest is for its answer, and the count of tokens is rough.
    """
    if config.reflection_lm is None:
        return config
    model = PriceTable({}).named(config.reflection_lm)
    tokens = UNKNOWN_WINDOW_TOKENS if model is None or not model.most_input else max(1000, model.most_input // 2)
    found = {"reflection_prompt_tokens": tokens, "reflection_images": model is None or model.takes_images}
    return config.model_copy(update={name: value for name, value in found.items() if getattr(config, name) is None})


def endpoints(config: RunConfig) -> list[Address]:
    """Return the endpoints of `url` in their order, then those of the endpoints file, at least one in all.

    Raises:
        SettingsError: none is named. Refused: the file cannot be read.
        ConnectionLost: the only sandbox of the run is gone, and another one is started.
    """
    found = listed_endpoints(config)
    if not found and config.repo is not None:
        raise ConnectionLost("no sandbox is there at present: the last one is being replaced", sent=False)
    if not found:
        raise SettingsError(f"the fleet file {config.fleet} names no server, and no URL is given")
    return found


def listed_endpoints(config: RunConfig) -> list[Address]:
    """Return `endpoints` as they are now; none while no sandbox of the run is ready.

    Raises:
        Refused: the endpoints file cannot be read.
    """
    insecure = config.allow_insecure
    found = [Address(url, token_file=config.token_file, allow_insecure=insecure) for url in config.url]
    if config.fleet is not None:
        found += read_endpoints_file(config.fleet, allow_insecure=insecure)
    return found


def scorers(config: RunConfig) -> list[Address]:
    """Return the endpoints of `score_with`; none if the program's own server scores."""
    return [line_address(line, Path(), allow_insecure=config.allow_insecure) for line in config.score_with]


def known_secrets(config: RunConfig, store: str) -> list[str]:
    """Return secrets from the environment, the settings, the token files they name, and the address of the store.

    The token of a file that cannot be read now is left out; the fleet adds it before it uses it.

    Raises:
        Refused: the endpoints file cannot be read.
    """
    values = config.model_dump(mode="json")
    inside = [part for name, value in values.items() for part in secret_parts(name, value) if isinstance(part, str)]
    password = (urlsplit(store).password if "://" in store else None) or ""
    passwords = {password, unquote(password)} - {""}
    named = (*config.pass_env, *(variable for *_, variable in map(parse_secret_header, config.secret_headers)))
    return [
        *secrets_of(),
        *(os.environ[variable] for variable in named if variable in os.environ),
        *inside,
        *_tokens([*listed_endpoints(config), *scorers(config)]),
        *passwords,
    ]


def _tokens(addresses: list[Address]) -> Iterator[str]:
    proxies = {address.proxy_token_file for address in addresses} - {None}
    for file in {address.token_file for address in addresses} | proxies:
        try:
            token = find_token(None, file)
        except Refused:
            continue  # the fleet reports it and tries again
        if token is not None:
            yield token
