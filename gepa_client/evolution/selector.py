"""Decides which components a proposal changes: the program's code, one of its prompts, or everything at once."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from gepa.core.state import GEPAState

from gepa_client.settings.run_settings import Evolve
from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_to


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
        names = self._choice(candidate)
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

    def _choice(self, candidate: Candidate) -> list[str]:
        """Components among which the step is."""
        prompts = [] if self.evolve == "code" else self._prompts(candidate)
        code = [GIT_BRANCH] if self.evolve != "prompts" else []
        return [*code, *prompts]

    def _prompts(self, candidate: Candidate) -> list[str]:
        unused = self.unused(candidate)
        own = [name for name in candidate if name not in (GIT_BRANCH, ADDED_COMPONENTS) and name not in unused]
        return [*own, *([ADDED_COMPONENTS] if set(added_to(candidate)) - unused else [])]
