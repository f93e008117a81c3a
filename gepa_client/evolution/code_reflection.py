"""A GEPA reflection strategy for programs whose code evolves: texts as usual, code by change requests."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal

from gepa_client.errors import BadResponse, ClientError, Interrupted, RecordedFailure, summary
from gepa_client.evolution.lineage import Lineage
from gepa_client.evolution.mutations import CodeOutlines, MutationRequest, MutationRunner
from gepa_client.evolution.prompt import DEFAULT_TEMPLATE, change_request, code_prompt
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection import WHERE, ConcurrentReflection, Prompt
from gepa_client.gepa.reflective_datasets import Records, without_images
from gepa_client.journal.mutation_entries import MutationEntry
from protocol import Candidate, JsonValue
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to
from protocol.errors import RpcError

APPLY = "apply_mutation"

AGENT = "agent"
"""The stage whose rejections mean that the coding agent failed, not that the change is bad."""


class CodeReflection:
    """Has the model write texts and change requests for all jobs of an iteration at once, then all requests made.

    `texts` asks the model. A change that is rejected proposes nothing and is kept in `lineage`, where the next request
    on the same line finds it. `template`: the prompt for change requests; its
    placeholders are described in `gepa_client.evolution.prompt`.
    """

    def __init__(
        self,
        adapter: RemoteAdapter,
        texts: ConcurrentReflection,
        mutations: MutationRunner,
        lineage: Lineage,
        template: str | None = None,
    ) -> None:
        self._adapter = adapter
        self._texts = texts
        self._mutations = mutations
        self._lineage = lineage
        self._template = template or DEFAULT_TEMPLATE
        self._outlines = CodeOutlines(adapter)

    @property
    def total_cost(self) -> float:
        """USD the model's answers have cost so far, in every process of the run."""
        return self._texts.total_cost

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[ReflectionProposal, Self]:
        """One job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[ReflectionProposal, Self]]:
        """One proposal per job, in order; empty for a job that failed or was rejected. Raises no `Exception`."""
        named = [(candidate, records, self._named(candidate, names)) for candidate, records, names in jobs]
        prompts, failed = self._prompts(named)
        asked = [
            ({**added_to(candidate), **candidate}, records, [] if at in failed else names)
            for at, (candidate, records, names) in enumerate(named)
        ]
        proposals = self._texts.propose(asked, prompts)
        made = self._make(jobs, proposals)
        return [(self._joined(job[0], proposals[at], made.get(at)), self) for at, job in enumerate(jobs)]

    def _named(self, candidate: Candidate, components: list[str]) -> list[str]:
        """Return the components with the added ones in place of the component that holds them."""
        if ADDED_COMPONENTS not in components:
            return components
        unused = self._adapter.commits.unused(candidate)
        others = [name for name in components if name != ADDED_COMPONENTS]
        return others + [name for name in added_to(candidate) if name not in unused]

    # --- asking for a change -----------------------------------------------------------------------------------------

    def _prompts(self, jobs: Sequence[ReflectionJob]) -> tuple[dict[tuple[int, str], Prompt], set[int]]:
        """Return the prompts for code, by job and component, and the jobs for which there can be none."""
        places = [at for at, (_, records, names) in enumerate(jobs) if GIT_BRANCH in names and records.get(GIT_BRANCH)]
        prompts: dict[tuple[int, str], Prompt] = {}
        failed: set[int] = set()
        for at, outline in zip(places, self._outlined([jobs[at][0] for at in places]), strict=True):
            candidate, records, _ = jobs[at]
            try:
                if isinstance(outline, Exception):
                    raise outline
                lineage = self._lineage.as_text(candidate)
                prompts[at, GIT_BRANCH] = code_prompt(self._template, outline, records[GIT_BRANCH], lineage)
            except Exception as error:  # noqa: BLE001 - records that cannot be rendered cost their job its proposal
                self._texts.failures.record(WHERE, error)
                failed.add(at)
        return prompts, failed

    def _outlined(self, candidates: Sequence[Candidate]) -> list[str | Exception]:
        if not candidates:
            return []
        try:
            return self._adapter.wait_for(self._outlines.of(candidates))
        except (RpcError, ClientError) as error:
            raise Interrupted("failed", f"outline_code: {summary(error)}") from error

    # --- having it made ----------------------------------------------------------------------------------------------

    def _make(
        self, jobs: Sequence[ReflectionJob], proposals: Sequence[ReflectionProposal]
    ) -> dict[int, MutationEntry | Exception]:
        """Have every change request carried out; return their outcomes by job."""
        wanted: dict[int, MutationRequest] = {}
        for at, proposal in enumerate(proposals):
            if (text := proposal.new_texts.get(GIT_BRANCH)) is not None:
                if text:
                    wanted[at] = self._wanted(jobs[at][0], jobs[at][1][GIT_BRANCH], text)
                else:
                    self._texts.failures.record(WHERE, BadResponse("the model wrote no change request"))
        if not wanted:
            return {}
        try:
            made = self._adapter.wait_for(self._mutations.make(list(wanted.values())))
        except (RpcError, ClientError) as error:
            raise Interrupted("failed", f"apply_mutation: {summary(error)}") from error
        for entry in made:
            if isinstance(entry, Exception):
                self._texts.failures.record(APPLY, entry)
            elif entry.rejected is not None and entry.rejected.stage == AGENT:
                self._texts.failures.record(APPLY, RecordedFailure(f"the agent: {entry.rejected.reason}"))
        return dict(zip(wanted, made, strict=True))

    def _wanted(self, candidate: Candidate, records: Sequence[Mapping[str, Any]], text: str) -> MutationRequest:
        request, location = change_request(text)
        mutation: dict[str, JsonValue] = {
            "kind": "change_request",
            "request": request,
            "location": location,
            "records": without_images(records)[0],
            "history": self._lineage.history(candidate),
        }
        return MutationRequest(candidate, mutation, request, location)

    def _joined(
        self, parent: Candidate, proposal: ReflectionProposal, made: MutationEntry | Exception | None
    ) -> ReflectionProposal:
        """Return the proposal with the candidate that the mutation made in place of the change request."""
        if isinstance(made, Exception):
            return ReflectionProposal({})
        applied = made.applied if made is not None else None
        texts = {name: text for name, text in proposal.new_texts.items() if name != GIT_BRANCH}
        new_texts = _new_texts(parent, texts, applied.candidate if applied is not None else parent)
        return ReflectionProposal(new_texts, proposal.prompts, proposal.raw_lm_outputs)


def _new_texts(parent: Candidate, texts: Mapping[str, str], base: Candidate) -> dict[str, str]:
    """Return how a child differs from `parent`: `base`, which its new code made, and other proposed texts."""
    child = dict(base)
    was, added = added_to(parent), added_to(base)
    for name, text in texts.items():
        if name in parent:
            child[name] = text if base[name] == parent[name] else base[name]
        elif name in added and added[name] == was[name]:
            added[name] = text
    if added != added_to(base):
        child[ADDED_COMPONENTS] = added_components(added)
    return {name: text for name, text in child.items() if text != parent[name]}
