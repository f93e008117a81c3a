"""The fingerprint of a run: what must be the same to resume it, and how two fingerprints differ."""

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from evolverpc_common.display_text import command, plain
from evolverpc_common.settings.sources import SettingsError
from gepa_client.journal.entries import SEARCH, StoredRun
from gepa_client.journal.history import end_of
from gepa_client.journal.requests import digest_of
from gepa_client.journal.store import Store, named_store
from gepa_client.run.resolved_settings import evolve_of, is_deterministic
from gepa_client.settings.run_config import IDENTITY_SETTINGS, RunConfig
from gepa_client.settings.secret_settings import NOT_RECORDED
from protocol import Candidate, DiscoverResult, ProgramInfo
from protocol.code import GIT_BRANCH, commit_of

REACHED_BY = frozenset({"api_base", "base_url", "azure_endpoint", "proxy", "timeout", "request_timeout"})
"""Arguments of a reflection model that define how it is reached, not which model it is."""

SHOWN_FILES = 8

REPLAY_VERSION = 1
"""Grows when requests, their numbers or their digests change, so that older journals cannot be replayed."""

_DIGEST = "program.digest: "
"""How a line of `differences` begins that only a digest distinguishes."""


def identity_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings of `IDENTITY_SETTINGS` as JSON, equal if they mean the same, without secrets.

    `evolve` and `deterministic` are left out: their values depend on the program, and `fingerprint_of` adds them.
    """
    recorded = config.recorded()
    found = {key: recorded[key] for key in sorted(IDENTITY_SETTINGS - {"proposals", "evolve", "deterministic"})}
    found["sampling_strategy"] = config.sampling
    found["reflection"] = "program" if config.reflection_lm is None else "model"
    found["reflection_lm_kwargs"] = {
        key: value
        for key, value in (recorded["reflection_lm_kwargs"] or {}).items()
        if value != NOT_RECORDED and key not in REACHED_BY
    }
    found["validation"] = config.sampled_on(config.sample)
    return found


class RunMismatch(SettingsError):
    """What was found is not what the run was recorded with; the record is unchanged."""


def fingerprint_of(
    config: RunConfig,
    discovery: DiscoverResult,
    seed_candidate: Candidate,
    scorer: DiscoverResult | None,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the fingerprint as JSON. `seed_candidate`: as recorded. `data`: per split, what identifies its rows."""
    evolve, commit = evolve_of(config, discovery), commit_of(seed_candidate)
    # the name of a branch is only a label
    at_its_commit = seed_candidate if commit is None else {**seed_candidate, GIT_BRANCH: commit}
    found: dict[str, Any] = {
        "gepa": version("gepa"),
        "replay": REPLAY_VERSION,
        "hash_seed": os.environ.get("PYTHONHASHSEED"),
        "settings": identity_settings(config),
        "program": _program_identity(discovery),
        "seed_candidate": digest_of(at_its_commit),
        "components": list(discovery.program.seed_candidate),
        "whole_batches": discovery.limits.whole_batches,
        "scorer": None if scorer is None else _program_identity(scorer),
        "data": dict(data),
    }
    found |= {} if evolve == "prompts" else {"evolve": evolve}
    return found | ({"deterministic": True} if is_deterministic(config, discovery) else {})


def _program_identity(discovery: DiscoverResult) -> dict[str, Any]:
    """Return the version that a program declares, else the digest of its code and configuration."""
    program = discovery.program
    if program.version is not None:
        return {"version": program.version}
    return {"digest": program.digest}


def differences(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return a line such as `settings.seed: 0 -> 1` for each difference."""
    before, after = _flat(recorded), _flat(found)
    return [
        f"{key}: {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def check_fingerprint(store: Store, run: StoredRun, found: Mapping[str, Any], code: str | None = None) -> None:
    """Raise `RunMismatch` if the run was recorded with another one, with the differences and what to do instead.

    `code`: how the program's code differs, in place of its digests.
    """
    if different := differences(run.identity or {}, found):
        different = [code if code and line.startswith(_DIGEST) else line for line in different]
        listed = "\n".join(f"  {line}" for line in different)
        fork = command("fork", run.id, "--at", str(end_of(store, run.id, SEARCH)), store=named_store(store.url))
        raise RunMismatch(
            f"run {run.id} was recorded with other settings, rows or code, and resuming would mix two runs:\n{listed}\n"
            "If the change is meant, start a new run as you started this one. To continue this run, restore what "
            f"differs. To keep recorded scores, also those of what has changed since, give the new settings to a fork; "
            f"if it asks for something else, it states from where on, and pays for nothing before: {fork}"
        )


def changed_code(recorded: ProgramInfo, found: ProgramInfo) -> str:
    """Return how the program differs from the recorded one, such as `program.py has changed`, if digests differ."""
    before, after = recorded.files, found.files
    if before is None or after is None:
        return "the program's code or its settings have changed"
    names = sorted(before.keys() | after.keys())
    kinds = {
        "has changed": [name for name in names if name in before and name in after and before[name] != after[name]],
        "is new": [name for name in names if name not in before],
        "is gone": [name for name in names if name not in after],
    }
    words = [f"{plain(name, limit=80)} {kind}" for kind, files in kinds.items() for name in files]
    more = [f"{len(words) - SHOWN_FILES} more"] if len(words) > SHOWN_FILES else []
    return ", ".join([*words[:SHOWN_FILES], *more]) or "the server's settings of the program have changed, no file has"


def changed_data(recorded: ProgramInfo, found: ProgramInfo) -> list[str]:
    """Return a warning for each list or dict of a program of functions that is not what it was."""
    before, after = recorded.files or {}, found.files or {}
    names = [name for name in sorted(before.keys() & after.keys()) if name.startswith("data ")]
    return [
        f"{plain(name.removeprefix('data '), limit=80)}, which the program reads, is not what it was when the run "
        "began; the recorded scores stay as they are"
        for name in names
        if before[name] != after[name]
    ]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {path: value}
    flat: dict[str, Any] = {}
    for key, part in value.items():
        flat |= _flat(part, f"{path}.{key}" if path else str(key))
    return flat


def _shown(value: Any) -> str:
    return "none" if value is None else plain(str(value), limit=80)
