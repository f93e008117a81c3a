"""A digest of the settings that a run's result depends on; an import of the run has the same digest."""

from gepa_client.journal.entries import StoredRun
from gepa_client.journal.requests import digest_of
from gepa_client.settings.groups import (
    BudgetSettings,
    CodeSettings,
    DatasetSettings,
    ReflectionSettings,
    SearchSettings,
)
from gepa_client.settings.run_config import RunConfig

GROUPS = (DatasetSettings, BudgetSettings, ReflectionSettings, SearchSettings, CodeSettings)

LEFT_OUT = frozenset({"reflection_lm_kwargs"})
"""Arguments that an import cuts; the fingerprint has those of them that matter."""

COVERED = tuple(sorted({"example_timeout_s", *(name for group in GROUPS for name in group.model_fields)} - LEFT_OUT))
"""The settings that the digest covers."""


def settings_digest(run: StoredRun) -> str:
    """Return a digest of the fingerprint and of those settings in `COVERED` that differ from their defaults.

    Settings that name servers, credentials, sandboxes and files of results are not among them.
    """
    defaults = RunConfig.model_construct().model_dump(mode="json")
    covered = {name: run.config[name] for name in COVERED if name in run.config}
    given = {name: value for name, value in covered.items() if value != defaults[name]}
    return digest_of([run.identity, given])
