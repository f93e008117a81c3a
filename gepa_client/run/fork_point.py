"""How much of a run's record other settings, or another program, can continue from: what a fork can begin with."""

from dataclasses import replace

from evolverpc_common.display_text import command
from evolverpc_common.settings.sources import SettingsError
from gepa_client.journal.buffer import JournalBuffer
from gepa_client.journal.entries import SEARCH, StoredRun
from gepa_client.journal.history import end_of
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.store import Store, named_store
from gepa_client.run.initial_state import InitialState
from gepa_client.run.replay_run import repeated
from gepa_client.settings.flag_words import flag_words
from gepa_client.settings.groups import FleetSettings, SandboxSettings
from gepa_client.settings.run_config import ROW_SETTINGS, SETTINGS, RunConfig
from protocol import Candidate

_NOT_OF_A_FORK = frozenset(
    {*FleetSettings.model_fields, *SandboxSettings.model_fields, *ROW_SETTINGS, "store", "output", "name"}
)
"""Settings that a printed `fork` does not repeat: they do not change what the run is, or belong to one run alone."""


def fork_command(
    store: Store, store_url: str, run: StoredRun, config: RunConfig, initial: InitialState, seed_candidate: Candidate
) -> str | None:
    """Return the `evolverpc fork` that begins with as much of the record as `config` and the program repeat.

    None if that is nothing. `initial`: with the recorded rows and the program's present description.
    """
    at = _repeated(store, run, config, replace(initial, seed_candidate=seed_candidate))
    if at == 0:
        return None
    return command("fork", run.id, "--at", str(at), *_changed_flags(run, config), store=named_store(store_url))


def _repeated(store: Store, run: StoredRun, config: RunConfig, initial: InitialState) -> int:
    """Return how many numbers of the search a replay with these settings repeats. It calls and writes nothing."""
    end = end_of(store, run.id, SEARCH)
    storage = JournalBuffer(store, run.id, run.id, lambda _error: None, reads_only=True)
    journal = Journal(run.id, storage, SpendingTotals(store.spending(run.id)), replays=True)
    with repeated(journal, config, initial, None, lambda _event: None) as optimization:
        try:
            optimization.run(optimization.reflection())
        except SettingsError:
            return 0  # a fork with these settings could not begin either
    return min(end, journal.next_number if journal.differs_at is None else journal.differs_at)


def _changed_flags(run: StoredRun, config: RunConfig) -> list[str]:
    """Return the flags of the settings that are not as the run recorded them."""
    defaults = RunConfig.model_construct().model_dump(mode="json")
    before = {**defaults, **run.config}
    words: list[str] = []
    for name, value in config.recorded().items():
        if name not in SETTINGS or name in _NOT_OF_A_FORK or value == before[name]:
            continue
        if name == "reflection_lm" and value is None:
            value = "program"
        if value is not None:
            words += flag_words(name, value)
    return words
