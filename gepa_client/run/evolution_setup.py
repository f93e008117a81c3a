"""What GEPA needs where a program's code evolves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from gepa.strategies.proposal_selection import SelectionStrategy

from gepa_client.evolution.code_adapter import EvolvingAdapter
from gepa_client.evolution.code_reflection import CodeReflection
from gepa_client.evolution.lineage import JudgedSelection, Lineage
from gepa_client.evolution.merging import CodeMerge
from gepa_client.evolution.mutations import Mutations
from gepa_client.evolution.selector import ComponentSelector, Schedule
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection import ConcurrentReflection
from gepa_client.journal.run_events import Emit
from gepa_client.run.resolved_settings import evolve_of
from gepa_client.settings.run_config import RunConfig
from protocol.code import GIT_BRANCH


@dataclass(frozen=True)
class EvolutionSetup:
    """`adapter`, `reflection`, `callbacks`: for `gepa.optimize`. `selector`: None where GEPA's own will do.

    `lineage`: None where code is not changed.
    """

    adapter: RemoteAdapter | EvolvingAdapter
    reflection: Any
    selector: ComponentSelector | None = None
    callbacks: Sequence[object] = ()
    lineage: Lineage | None = None

    @classmethod
    def of(cls, config: RunConfig, adapter: RemoteAdapter, reflection: Any, emit: Emit) -> Self:
        """For a run whose texts are proposed by `reflection`; `emit` is told of changes of code.

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
        mutations = Mutations(adapter, lineage, emit, config.mutation_timeout_s)
        merge = CodeMerge(adapter, mutations)
        return cls(
            EvolvingAdapter(adapter, merge),
            CodeReflection(adapter, reflection, mutations, lineage, config.code_prompt_template),
            selector,
            [lineage, merge],
            lineage,
        )

    def strategies(self, selection: SelectionStrategy) -> dict[str, Any]:
        """The arguments of `gepa.optimize` that are not as the settings alone have them."""
        judged = {} if self.lineage is None else {"selection_strategy": JudgedSelection(selection, self.lineage)}
        return judged if self.selector is None else judged | {"module_selector": self.selector}


def _schedule(config: RunConfig) -> Schedule | None:
    if config.prompts_per_code is None:
        return None
    return Schedule(config.prompts_per_code, config.decay_factor or 1.0, config.decay_every or 1)
