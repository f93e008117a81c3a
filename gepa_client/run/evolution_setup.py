"""The adapter, reflection and strategies that GEPA needs if a program's code evolves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from gepa.strategies.proposal_selection import SelectionStrategy

from gepa_client.evolution.code_adapter import CodeMerge, EvolvingAdapter
from gepa_client.evolution.code_reflection import CodeReflection
from gepa_client.evolution.lineage import Lineage, ScoringSelection
from gepa_client.evolution.mutations import MutationRunner
from gepa_client.evolution.selector import ComponentSelector, Schedule
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection import ConcurrentReflection
from gepa_client.journal.run_events import Emit
from gepa_client.run.resolved_settings import evolve_of
from gepa_client.settings.run_config import RunConfig
from protocol.code import GIT_BRANCH


@dataclass(frozen=True)
class EvolutionSetup:
    """`adapter`, `reflection`, `callbacks`: for `gepa.optimize`. `selector`: None if GEPA's own will do.

    `lineage`: None if code is not changed.
    """

    adapter: RemoteAdapter | EvolvingAdapter
    reflection: Any
    selector: ComponentSelector | None = None
    callbacks: Sequence[object] = ()
    lineage: Lineage | None = None

    @classmethod
    def of(cls, config: RunConfig, adapter: RemoteAdapter, reflection: Any, emit: Emit) -> Self:
        """Set up a run whose texts `reflection` proposes; `emit` gets events of code mutations.

        Raises:
            SettingsError: as `evolve_of`.
        """
        evolve = evolve_of(config, adapter.discovery)
        if GIT_BRANCH not in adapter.seed_candidate:
            return cls(adapter, reflection)
        selector = ComponentSelector(
            evolve,
            adapter.commits.unused,
            schedule=_schedule(config),
            code_until=config.code_until,
            all_at_once=config.module_selector == "all",
        )
        if evolve == "prompts" or not isinstance(reflection, ConcurrentReflection):
            return cls(adapter, reflection, selector)
        lineage = Lineage(adapter.commits)
        mutations = MutationRunner(adapter, lineage, emit, config.mutation_timeout_s)
        merge = CodeMerge(adapter, mutations)
        return cls(
            EvolvingAdapter(adapter, merge),
            CodeReflection(adapter, reflection, mutations, lineage, config.code_prompt_template),
            selector,
            [lineage, merge],
            lineage,
        )

    def strategies(self, selection: SelectionStrategy) -> dict[str, Any]:
        """Return the arguments of `gepa.optimize` that replace those of the settings."""
        judged = {} if self.lineage is None else {"selection_strategy": ScoringSelection(selection, self.lineage)}
        return judged if self.selector is None else judged | {"module_selector": self.selector}


def _schedule(config: RunConfig) -> Schedule | None:
    if config.prompts_per_code is None:
        return None
    return Schedule(config.prompts_per_code, config.decay_factor or 1.0, config.decay_every or 1)
