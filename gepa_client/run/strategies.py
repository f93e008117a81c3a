"""Build GEPA's strategies from the settings, and what evolving code needs."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.proposal_sampling import IndependentSampling, PxNSampling, SamplingStrategy, SingleMutationSampling
from gepa.strategies.proposal_selection import AllImprovements, BestImprovement, SelectionStrategy, TopKImprovements

from evolverpc_common.settings.sources import SettingsError
from gepa_client.evolution.code_merge import CodeMerge
from gepa_client.evolution.code_reflection import DEFAULT_TEMPLATE, CodeReflection
from gepa_client.evolution.lineage import Lineage, ScoringSelection
from gepa_client.evolution.mutations import MutationRunner
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection_strategies import ConcurrentReflection
from gepa_client.gepa.rows import RowLoader, search_rows
from gepa_client.journal.run_events import Emit
from gepa_client.run.failures import FailFastCallback
from gepa_client.run.resolved_settings import evolve_of
from gepa_client.run.splits import Splits
from gepa_client.selection.paired_acceptance import PairedAcceptance
from gepa_client.selection.race import RacedSelection, behind_best
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import GEPA_MINIBATCH, Evolve
from gepa_client.steering.steering import ActiveRequests, steered
from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_to

PASSED = (
    *("reflection_prompt_template", "reflection_minibatch_size", "module_selector"),
    *("skip_perfect_score", "perfect_score", "candidate_selection_strategy", "frontier_type", "acceptance_criterion"),
    *("cache_evaluation", "max_metric_calls", "use_merge", "seed"),
)
"""Settings that `gepa.optimize` takes unchanged."""


def arguments(config: RunConfig) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` that follow from the settings alone."""
    return {
        **{name: getattr(config, name) for name in PASSED},
        "track_best_outputs": True,
        "use_wandb": "wandb" in config.tracking,
        "use_mlflow": "mlflow" in config.tracking,
        "sampling_strategy": sampling(config.proposals),
        "selection_strategy": selection(config.selection_strategy),
    }


def sampling(proposals: str) -> SamplingStrategy[Any, Any]:
    """Build the strategy for `1`, `4` or `2x4` proposals."""
    numbers = [int(number) for number in proposals.split("x")]
    if len(numbers) > 1:
        return PxNSampling(*numbers)
    return SingleMutationSampling() if numbers == [1] else IndependentSampling(*numbers)


def selection(text: str) -> SelectionStrategy:
    """Build `all`, `best` or `top_k:2`."""
    kind, _, count = text.partition(":")
    if kind == "top_k":
        return TopKImprovements(int(count))
    return BestImprovement() if kind == "best" else AllImprovements()


def sampled_rows(config: RunConfig, splits: Splits) -> RowLoader:
    """Return the rows that the search scores candidates on: the validation rows, or a sample of them for races.

    Without validation rows these are all training rows: none of them would be left for a fair comparison at the end.
    """
    return splits.val if splits.training_only else search_rows(splits.val, config.sample, config.seed)


def racing(
    arguments: dict[str, Any],
    adapter: RemoteAdapter,
    val: RowLoader,
    config: RunConfig,
    dropped: Set[int] = frozenset(),
) -> RacedSelection | None:
    """Have the proposals raced that `arguments` of `gepa.optimize` select, and return the race; None without one.

    `dropped`: candidates that no race compares with.

    Raises:
        SettingsError: the program evaluates whole batches.
    """
    if not config.races:
        return None
    if adapter.discovery.limits.whole_batches:
        raise SettingsError(
            "`validation` is race, but the program evaluates whole batches (it is a GEPAAdapter), and a race evaluates "
            "single rows: leave `validation` out, or serve functions that evaluate one example"
        )
    selection = arguments["selection_strategy"]
    on_lost = selection.lineage.lost if isinstance(selection, ScoringSelection) else lambda _candidate: None
    race = RacedSelection(selection, adapter, val, config.seed, config.perfect_score, on_lost, dropped)
    arguments["selection_strategy"] = race
    return race


@dataclass(frozen=True)
class SearchPlan:
    """The `arguments` of `gepa.optimize` that follow from the settings. `val`: the rows that candidates are scored on.

    `rejecting`: returns the fields of `Rejected` by which the selection states why it rejected a proposal.
    """

    arguments: dict[str, Any]
    val: RowLoader
    rejecting: Callable[[CandidateProposal[Any]], Mapping[str, Any]]


def search_plan(
    config: RunConfig,
    adapter: RemoteAdapter,
    reflection: Any,
    emit: Emit,
    splits: Splits,
    active_requests: ActiveRequests,
) -> SearchPlan:
    """Return how a run searches, with what users asked of it. `reflection`, `emit`: as of `evolution_arguments`.

    Raises:
        SettingsError: as `evolution_arguments`, `racing` and `PairedAcceptance`.
    """
    val = sampled_rows(config, splits)
    found = arguments(config) | evolution_arguments(config, adapter, reflection, emit)
    race = racing(found, adapter, val, config, active_requests.dropped)
    found = steered(found, active_requests, *([behind_best] if config.sample else []))
    if config.acceptance_criterion == "paired":
        minibatch, selected = config.reflection_minibatch_size or GEPA_MINIBATCH, found["selection_strategy"]
        paired = PairedAcceptance(found["adapter"], splits.train, minibatch, config.seed, selection=selected)
        found |= {"acceptance_criterion": paired, "selection_strategy": paired}
    return SearchPlan(found, val, (lambda _proposal: {}) if race is None else race.rejecting)


def evolution_arguments(config: RunConfig, adapter: RemoteAdapter, reflection: Any, emit: Emit) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` that depend on what evolves, among them its `adapter` and `callbacks`.

    `reflection`: proposes the texts. `emit`: gets the events of code mutations.

    Raises:
        SettingsError: as `evolve_of`.
    """
    evolve = evolve_of(config, adapter.discovery)
    unchanged = {"adapter": adapter, "reflection_strategy": reflection, "callbacks": adapter.callbacks}
    if GIT_BRANCH not in adapter.seed_candidate:
        return unchanged
    selector = ComponentSelector(
        evolve,
        adapter.commits.unused,
        all_at_once=config.module_selector == "all",
    )
    if evolve == "prompts" or not isinstance(reflection, ConcurrentReflection):
        return unchanged | {"module_selector": selector}
    lineage = Lineage(adapter.commits)
    mutations = MutationRunner(adapter, lineage, emit)
    merge = CodeMerge(adapter, mutations)
    adapter.complete = merge.complete
    return unchanged | {
        "reflection_strategy": CodeReflection(
            adapter, reflection, mutations, lineage, config.code_template or DEFAULT_TEMPLATE
        ),
        "callbacks": [*adapter.callbacks, FailFastCallback(lineage), FailFastCallback(merge)],
        "module_selector": selector,
        "selection_strategy": ScoringSelection(selection(config.selection_strategy), lineage),
    }


@dataclass
class ComponentSelector:
    """A component selector of GEPA's for programs whose code is a component. The same calls give the same answers.

    Code is one of the components that take turns, or with `all_at_once` one of those that are changed together.
    `unused`: what a candidate's code does not use.

    Prompts are the program's own texts, and `added_components` if there are any.
    """

    evolve: Evolve
    unused: Callable[[Candidate], Set[str]]
    all_at_once: bool = False

    def __call__(
        self,
        state: GEPAState[Any, Any],
        trajectories: list[Any],  # noqa: ARG002 - GEPA's signature
        subsample_scores: list[float],  # noqa: ARG002 - GEPA's signature
        candidate_idx: int,
        candidate: dict[str, str],
    ) -> list[str]:
        """Return the components to change in one task of an iteration; none if nothing may be changed."""
        names = [GIT_BRANCH] if self.evolve != "prompts" else []
        names += [] if self.evolve == "code" else self._prompts(candidate)
        if self.all_at_once or len(names) < 2:
            return names
        order = state.list_of_named_predictors
        turns = state.named_predictor_id_to_update_next_for_program_candidate
        at = next(
            turn % len(order)
            for turn in range(turns[candidate_idx], 2 * len(order))
            if order[turn % len(order)] in names
        )
        turns[candidate_idx] = (at + 1) % len(order)
        return [order[at]]

    def _prompts(self, candidate: Candidate) -> list[str]:
        unused = self.unused(candidate)
        own = [name for name in candidate if name not in (GIT_BRANCH, ADDED_COMPONENTS) and name not in unused]
        return [*own, *([ADDED_COMPONENTS] if set(added_to(candidate)) - unused else [])]
