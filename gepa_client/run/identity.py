"""What must be the same for a recorded run to be gone on with, and how two such records differ."""

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from evolverpc_common.printed_commands import command
from gepa_client.journal.requests import digest_of
from gepa_client.run.evolution_target import evolve_of
from gepa_client.run.fingerprint import REACHED_BY, identity_settings
from gepa_client.settings.loading import SettingsError
from gepa_client.settings.run_config import RunConfig
from protocol import Candidate, DiscoverResult
from protocol.code import GIT_BRANCH, commit_of

REPLAY_VERSION = 1
"""Grows when requests, their numbers or their digests change, so that older journals cannot be replayed."""


_REACHED_BY = frozenset(f"settings.reflection_lm_kwargs.{name}" for name in REACHED_BY)
"""Left out of a comparison: earlier versions recorded some of them as part of the identity."""


class AnotherRun(SettingsError):
    """What was found is not what the run was recorded with; the record is left as it was."""


def identity_of(
    config: RunConfig,
    discovery: DiscoverResult,
    seed_candidate: Candidate,
    scorer: DiscoverResult | None,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    """As JSON; `seed_candidate`: as it is recorded. `data`: per split what tells its rows from others."""
    evolve = evolve_of(config, discovery)
    found: dict[str, Any] = {
        "gepa": version("gepa"),
        "replay": REPLAY_VERSION,
        "hash_seed": os.environ.get("PYTHONHASHSEED"),
        "settings": identity_settings(config),
        "program": _program(discovery),
        "seed_candidate": digest_of(_at_its_commit(seed_candidate)),
        "components": list(discovery.program.seed_candidate),
        "whole_batches": discovery.limits.whole_batches,
        "scorer": None if scorer is None else _program(scorer),
        "data": dict(data),
    }
    return found if evolve == "prompts" else found | {"evolve": evolve}


def _at_its_commit(candidate: Candidate) -> Candidate:
    """The candidate with the commit alone in `git_branch`: the branch it was found on is only a label."""
    commit = commit_of(candidate)
    return candidate if commit is None else {**candidate, GIT_BRANCH: commit}


def _program(discovery: DiscoverResult) -> dict[str, Any]:
    """The version a program declares, else a digest of its code and configuration; a version is its author's word."""
    program = discovery.program
    if program.version is not None:
        return {"version": program.version}
    return {"digest": program.digest}


def differences(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """`settings.seed: 0 -> 1`, one for each that differs."""
    before, after = (
        {key: value for key, value in _flat(side).items() if key not in _REACHED_BY} for side in (recorded, found)
    )
    return [
        f"{key}: {_shown(before.get(key))} -> {_shown(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def check_same(run_id: str, store: str | None, recorded: Mapping[str, Any], found: Mapping[str, Any], end: int) -> None:
    """Raise `AnotherRun` if they differ, with the differences and the command to run instead.

    `store`: None for the default one. `end`: of the run's journal.
    """
    if different := differences(recorded, found):
        listed = "\n".join(f"  {line}" for line in different)
        raise AnotherRun(
            f"run {run_id} was recorded with something else, and going on would mix two runs:\n{listed}\n"
            f"Put it back as it was, or let a run of its own go on from the record: "
            f"{command('fork', run_id, '--at', str(end), store=store)}"
        )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {path: value}
    flat: dict[str, Any] = {}
    for key, part in value.items():
        flat |= _flat(part, f"{path}.{key}" if path else str(key))
    return flat


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
