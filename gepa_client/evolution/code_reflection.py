"""A GEPA reflection strategy for programs whose code evolves: texts as usual, code by change requests."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob

from gepa_client.errors import BadResponse, RecordedFailure
from gepa_client.evolution.lineage import Lineage
from gepa_client.evolution.mutations import CodeOutlines, MutationRequest, MutationRunner
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.answer_check import AnswerForm, wants_block
from gepa_client.gepa.reflection_prompt import RECORDS, Prompt, cut_middle, filled
from gepa_client.gepa.reflection_strategies import WHERE, ConcurrentReflection, ReflectionStrategy, TextProposal
from gepa_client.gepa.reflective_datasets import without_images
from gepa_client.journal.answer_entries import MutationEntry
from protocol import Candidate, JsonValue
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to

APPLY = "apply_mutation"

AGENT = "agent"
"""The stage whose rejections mean that the coding agent failed, not that the change is bad."""

MAX_VALUE = 4_000
"""Characters of a text in a record that are shown: what is wrong with code seldom needs a long input in full."""

_LOCATION = re.compile(r"\s*location:[ \t]*(?P<location>\S[^\n]*)\n(?P<request>.*)", re.IGNORECASE | re.DOTALL)

OUTLINE, LINEAGE = "<outline>", "<lineage>"
MARKS = (OUTLINE, RECORDS, LINEAGE)

DEFAULT_TEMPLATE = f"""You improve a program by having its code changed. An overview of the program's code:
```
{OUTLINE}
```

Examples of inputs that the program was given, what it did with each of them, and feedback on how that could be better:
```
{RECORDS}
```

Changes that were asked for earlier, and what came of each:
```
{LINEAGE}
```

Find out what most often goes wrong in these examples, and which single change of the program's code would help with \
inputs of this kind in general, not only with these. It may change how the program works: its steps, what it asks a \
model and how often, the tools and checks it uses, how it reads inputs and writes outputs. It may add texts that are \
tuned later, such as prompts for new steps. Do not repeat a change that was rejected or was not better, unless you \
know what to do otherwise. Never have the program contain answers to these examples, and leave alone how it is scored.

Write one change request for a programmer who sees the code, but not your reasoning: what to change and why, precise \
enough to be carried out, in a few paragraphs and without writing the code yourself. If you know where the change \
belongs, begin with a line such as `Location: path/to/file, name of the function`.

Provide the change request within ``` blocks."""


@dataclass
class CodeReflection(ReflectionStrategy):
    """Has the model write texts and change requests for all jobs of an iteration at once, then all requests made.

    `texts` asks the model. A change that is rejected proposes nothing and is kept in `lineage`, where the next request
    on the same line finds it. `template`: the prompt for change requests; its placeholders are `MARKS`.
    """

    adapter: RemoteAdapter
    texts: ConcurrentReflection
    mutations: MutationRunner
    lineage: Lineage
    template: str

    def __post_init__(self) -> None:
        self._outlines = CodeOutlines(self.adapter)

    def propose(self, jobs: Sequence[ReflectionJob]) -> list[TextProposal]:
        """Return one proposal per job, in order; empty for a job that failed or was rejected. Raises no `Exception`."""
        with_added = self.adapter.commits.with_added
        named = [(candidate, records, with_added(candidate, names)) for candidate, records, names in jobs]
        prompts, failed = self._prompts(named)
        asked = [
            ({**added_to(candidate), **candidate}, records, [] if at in failed else names)
            for at, (candidate, records, names) in enumerate(named)
        ]
        proposals = self.texts.propose(asked, prompts, AnswerForm(wants_block(self.template), "change request"))
        made = self._make(jobs, proposals)
        return [self._joined(job[0], proposals[at], *made.get(at, (None, None))) for at, job in enumerate(jobs)]

    # --- asking for a change -----------------------------------------------------------------------------------------

    def _prompts(self, jobs: Sequence[ReflectionJob]) -> tuple[dict[tuple[int, str], Prompt], set[int]]:
        """Return the prompts for code, by job and component, and the jobs for which there can be none."""
        places = [at for at, (_, records, names) in enumerate(jobs) if GIT_BRANCH in names and records.get(GIT_BRANCH)]
        prompts: dict[tuple[int, str], Prompt] = {}
        failed: set[int] = set()
        for at, outline in zip(places, self._outlines.of([jobs[at][0] for at in places]), strict=True):
            candidate, records, _ = jobs[at]
            try:
                if isinstance(outline, Exception):
                    raise outline
                lineage = self.lineage.as_text(candidate)
                prompts[at, GIT_BRANCH] = code_prompt(
                    self.template, outline, self.texts.shown(records[GIT_BRANCH]), lineage
                )
            except Exception as error:  # noqa: BLE001 - records that cannot be rendered cost their job its proposal
                self.texts.failures.record(WHERE, error)
                failed.add(at)
        return prompts, failed

    # --- having it made ----------------------------------------------------------------------------------------------

    def _make(
        self, jobs: Sequence[ReflectionJob], proposals: Sequence[TextProposal]
    ) -> dict[int, tuple[int, MutationEntry | Exception]]:
        """Have every change request carried out; return their numbers in the journal and their outcomes, by job."""
        wanted: dict[int, MutationRequest] = {}
        for at, proposal in enumerate(proposals):
            if (text := proposal.new_texts.get(GIT_BRANCH)) is not None:
                if text:
                    wanted[at] = self._wanted(jobs[at][0], jobs[at][1][GIT_BRANCH], text)
                else:
                    self.texts.failures.record(WHERE, BadResponse("the model wrote no change request"))
        if not wanted:
            return {}
        first = self.adapter.journal.next_number
        made = self.mutations.make(list(wanted.values()))
        for entry in made:
            if isinstance(entry, Exception):
                self.texts.failures.record(APPLY, entry)
            elif entry.rejected is not None and entry.rejected.stage == AGENT:
                self.texts.failures.record(APPLY, RecordedFailure(f"the agent: {entry.rejected.reason}"))
        return dict(zip(wanted, enumerate(made, first), strict=True))

    def _wanted(self, candidate: Candidate, records: Sequence[Mapping[str, Any]], text: str) -> MutationRequest:
        request, location = change_request(text)
        mutation: dict[str, JsonValue] = {
            "kind": "change_request",
            "request": request,
            "location": location,
            "records": without_images(records)[0],
            "history": self.lineage.history(candidate),
        }
        return MutationRequest(candidate, mutation, request, location)

    def _joined(
        self, parent: Candidate, proposal: TextProposal, number: int | None, made: MutationEntry | Exception | None
    ) -> TextProposal:
        """Return the proposal with the candidate that the mutation made in place of the change request."""
        if isinstance(made, Exception):
            return replace(proposal, new_texts={}, prompts={}, raw_lm_outputs={})
        applied = made.applied if made is not None else None
        texts = {name: text for name, text in proposal.new_texts.items() if name != GIT_BRANCH}
        new_texts = _new_texts(parent, texts, applied.candidate if applied is not None else parent)
        return replace(proposal, new_texts=new_texts, mutation=number)


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


def code_prompt(template: str, outline: str, records: Sequence[Mapping[str, Any]], lineage: str) -> Prompt:
    """Return the prompt for a change request, long texts of records cut.

    Raises:
        TypeError: the records are no list of objects.
    """
    return filled(template, [_shortened(record) for record in records], {OUTLINE: outline, LINEAGE: lineage})


def change_request(text: str) -> tuple[str, str | None]:
    """Return the request that the model wrote and, separately, the location it named for the change."""
    found = _LOCATION.fullmatch(text)
    if found is None or not found["request"].strip():
        return text.strip(), None
    return found["request"].strip(), found["location"].strip()


def _shortened(value: Any) -> Any:
    """Return the value with each text in it cut in its middle, as both ends of a text may matter."""
    if isinstance(value, str):
        return cut_middle(value, MAX_VALUE)
    if isinstance(value, Mapping):
        return {key: _shortened(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shortened(part) for part in value]
    return value
