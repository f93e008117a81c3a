"""GEPA strategies that reflect on all minibatches of an iteration at once; one failure does not lose the others."""

import asyncio
import functools
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

from gepa.core.callbacks import EvaluationEndEvent, IterationStartEvent
from gepa.core.state import GEPAState
from gepa.proposer.reflective_mutation.base import ReflectionComponentSelector
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal
from gepa.strategies.component_selector import RoundRobinReflectionComponentSelector
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from gepa_client.errors import BadResponse, Interrupted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.answer_check import AnswerCheck, AnswerForm, extracted, wants_block, with_paragraph
from gepa_client.gepa.hooks import Failures
from gepa_client.gepa.reflection_prompt import TEXT, FittedRecords, Prompt, RecordBudget, filled
from gepa_client.gepa.reflective_datasets import DatasetJob, Records, images_described
from gepa_client.journal.answer_entries import CUT_OFF, HALF_CHARACTER, CompletionEntry
from gepa_client.journal.entries import COMPLETION
from gepa_client.journal.journal import Journal, execute_missing
from gepa_client.journal.requests import RecordedRequest, digest_of, request_key
from gepa_client.journal.run_events import TextAnswer, UnusableReason, UnusableText
from gepa_client.transport.event_loop import EventLoopThread, GroupTask, in_daemon_thread
from protocol import JsonValue

LanguageModel = Callable[[Prompt], str]

WHERE = "reflection"

HINTS = "# Hints from the person who runs this optimization"
"""The heading of hints in a prompt."""


@dataclass
class TextProposal(ReflectionProposal):
    """A proposal with what it was made from; the fields are those of `ProposalMade`, and the texts it has not."""

    answers: list[TextAnswer] = field(default_factory=list)
    unusable: list[UnusableText] = field(default_factory=list)
    mutation: int | None = None
    by_hand: str | None = None
    request: str | None = None


class ReflectionStrategy(ABC):
    """GEPA's interface of a reflection strategy, over `propose`."""

    @abstractmethod
    def propose(self, jobs: Sequence[ReflectionJob]) -> list[TextProposal]:
        """Return one proposal per job, in order; empty for a job that failed. Raises no `Exception`."""

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[TextProposal, Self]:
        """Do one job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[TextProposal, Self]]:
        """Return what `propose` returns, as GEPA takes it."""
        return [(proposal, self) for proposal in self.propose(jobs)]


@dataclass(eq=False)
class ConcurrentReflection(ReflectionStrategy):
    """Prompts a language model, with GEPA's own prompts, for every (job, component) of an iteration at the same time.

    It uses the same prompts as GEPA's `StatelessReflectionLM`, in the same order. A job with a failed request proposes
    nothing, and the cause is kept in `failures`; an interruption raised by the model passes through.

    `lm`: takes a prompt or chat messages and returns text; must support calls from several threads. If it has a method
    `complete`, as `LiteLLMModel` has, that is called and its cost is counted. `prompt_template`: one for all
    components, or one per component name. `max_workers`: requests at once. `journal`: has the answers of earlier
    processes of the same run, and records new ones. `budget`: of tokens, without a limit by default.
    `shows_images`: False for a model that takes none, which then reads their type and size. `check`: what an answer
    must be; a model that gives another one is asked once more, with the reason, and then proposes nothing for the
    component. Without it every answer is proposed, as GEPA does. `hints`: returns what a user wants prompts to show
    beside the records.

    Raises:
        ValueError: a template lacks `<curr_param>` or `<side_info>`.
    """

    lm: LanguageModel
    prompt_template: str | dict[str, str] | None = None
    max_workers: int = 20
    failures: Failures = field(default_factory=Failures)
    journal: Journal = field(default_factory=lambda: Journal(uuid.uuid4().hex))
    budget: RecordBudget = field(default_factory=RecordBudget)
    _: KW_ONLY
    shows_images: bool = True
    check: AnswerCheck | None = None
    hints: Callable[[], Sequence[str]] = tuple

    def __post_init__(self) -> None:
        given = self.prompt_template
        for template in given.values() if isinstance(given, dict) else [given]:
            InstructionProposalSignature.validate_prompt_template(template)
        self._read: list[tuple[int, TextAnswer]] = []  # of the present call of `propose`, by job, as the next ones
        self._unusable: list[tuple[int, UnusableText]] = []
        self._gives_blocks = True  # until a second prompt for a block is answered with a text, but without one

    @property
    def total_cost(self) -> float:
        """The known cost of its answers in USD, in every process of the run."""
        return self.journal.spending[COMPLETION].cost_usd

    def propose(
        self,
        jobs: Sequence[ReflectionJob],
        given: Mapping[tuple[int, str], Prompt] | None = None,
        form: AnswerForm | None = None,
    ) -> list[TextProposal]:
        """Return the proposals of `reflect_many`.

        `given`: prompts by job and component, in place of GEPA's own, for answers of this `form`.
        """
        tasks: list[_Task] = []
        proposals = [TextProposal({}) for _ in jobs]
        self._read, self._unusable = [], []
        failed: set[int] = set()
        for at, (candidate, records, components) in enumerate(jobs):
            try:
                tasks += [
                    self._task(at, candidate, records, name, (given or {}).get((at, name)), form)
                    for name in components
                    if records.get(name)
                ]
            except Exception as error:  # noqa: BLE001 - records that cannot be rendered cost their job its proposal
                self.failures.record(WHERE, error)
                failed.add(at)
        for task, answer in zip(tasks, self._usable_answers(tasks), strict=True):
            if isinstance(answer, Exception):
                self.failures.record(WHERE, answer)
                failed.add(task.job)
            elif answer is not None:
                proposals[task.job].new_texts[task.component] = self._text_of(task, answer)
                proposals[task.job].prompts[task.component] = task.prompt
                proposals[task.job].raw_lm_outputs[task.component] = answer.text
        found = [TextProposal({}) if at in failed else each for at, each in enumerate(proposals)]
        for job, read in self._read:
            found[job].answers.append(read)
        for job, unusable in self._unusable:
            found[job].unusable.append(unusable)
        return found

    def prompt(self, candidate: Mapping[str, str], records: Records, name: str) -> Prompt:
        """Return the prompt for a new text of a component, with the present hints."""
        fitted = self.fitted(candidate, records, name).records
        prompt = self._hinted(filled(self._template(name), fitted, {TEXT: candidate[name]}))
        return self.check.bounded(prompt) if self.check is not None else prompt

    def fitted(self, candidate: Mapping[str, str], records: Records, name: str) -> FittedRecords:
        """Return the records of a component as its prompt shows them."""
        return self.budget.fit(
            self.shown(records[name]), self._template(name) + candidate[name] + "".join(self.hints())
        )

    def shown(self, records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the records with images only if the model takes them."""
        return records if self.shows_images else images_described(records)

    def _template(self, name: str) -> str:
        given = self.prompt_template
        template = given.get(name) if isinstance(given, dict) else given
        return template or InstructionProposalSignature.default_prompt_template

    def _task(
        self,
        job: int,
        candidate: Mapping[str, str],
        records: Records,
        name: str,
        given: Prompt | None,
        form: AnswerForm | None,
    ) -> "_Task":
        if given is not None:
            return _Task(job, name, self._hinted(given), form or AnswerForm(block=True), before=None)
        prompt = self.prompt(candidate, records, name)
        return _Task(job, name, prompt, AnswerForm(wants_block(self._template(name))), before=candidate[name])

    def _hinted(self, prompt: Prompt) -> Prompt:
        """Return the prompt with the user's hints, if there are any."""
        hints = self.hints()
        return with_paragraph(prompt, "\n\n".join([HINTS, *hints])) if hints else prompt

    def _usable_answers(self, tasks: Sequence["_Task"]) -> "list[CompletionEntry | Exception | None]":
        """Return the answer to each task; None if neither the first nor the second one can be used."""
        answers: list[CompletionEntry | Exception | None] = [*self._answers(tasks)]
        if self.check is None:
            return answers
        found = {at: reason for at, task in enumerate(tasks) if (reason := self._judged(task, answers[at])) is not None}
        if not found:
            return answers
        again = [tasks[at].again(reason, self.check) for at, reason in found.items()]
        for (at, reason), task, answer in zip(found.items(), again, self._answers(again), strict=True):
            then = self._judged(task, answer)
            answers[at] = answer if then is None else None
            if isinstance(answer, Exception):
                continue
            unusable = UnusableText(
                component=task.component, reason=reason, asked_again=True, then=then, dropped=then is not None
            )
            self._unusable.append((task.job, unusable))
            if then is None and task.form.lacks_block(answer.text):
                self._gives_blocks = False
        return answers

    def _judged(self, task: "_Task", answer: CompletionEntry | Exception | None) -> UnusableReason | None:
        """Return why an answer cannot be used; None for one that can, and for a failed request."""
        if self.check is None or not isinstance(answer, CompletionEntry):
            return None
        if answer.finish_reason == HALF_CHARACTER:
            return "not text"
        fault = task.form.judged(
            answer.text,
            task.before or "",
            cut_off=answer.finish_reason == CUT_OFF,
            block_expected=self._gives_blocks and task.asked is None,
        )
        return fault if fault or task.before is None else self.check.judged(task.form.text(answer.text), task.before)

    def _text_of(self, task: "_Task", answer: CompletionEntry) -> str:
        return extracted(answer.text) if self.check is None else task.form.text(answer.text)

    @functools.cached_property
    def _loop(self) -> EventLoopThread:
        loop = EventLoopThread()
        weakref.finalize(self, loop.close).atexit = False  # its thread is a daemon
        return loop

    def _answers(self, tasks: Sequence["_Task"]) -> list[CompletionEntry | Exception]:
        """Return the model's answer to each prompt, or its exception; recorded ones are not requested again."""
        if not tasks:
            return []
        requests = self.journal.ask([request_key(COMPLETION, task.about, task.digest) for task in tasks])
        room = asyncio.Semaphore(self.max_workers)

        async def execute(at: int, running: GroupTask) -> JsonValue:
            async with room:
                return await self._complete(requests[at], tasks[at].prompt, running)

        made = self._loop.run(execute_missing(self.journal, requests, execute, failures=(Exception,)))
        answers = [each if isinstance(each, Exception) else CompletionEntry.from_json(each) for each in made]
        for task, request, answer in zip(tasks, requests, answers, strict=True):
            if not isinstance(answer, Exception):
                read = TextAnswer(component=task.component, number=request.number, again=task.asked)
                self._read.append((task.job, read))
        return answers

    async def _complete(self, request: RecordedRequest, prompt: Prompt, running: GroupTask) -> JsonValue:
        """Return one answer as the journal has it; its cost is recorded as soon as it arrives."""
        attempts = self.journal.attempts(request, COMPLETION, running)
        await attempts.start(str(getattr(self.lm, "name", type(self.lm).__name__)), None, repeat=False)
        started = time.monotonic()
        complete = getattr(self.lm, "complete", None)
        try:
            if complete is None:
                text, cut_off, usage = await in_daemon_thread(lambda: self.lm(prompt)), False, None
            else:
                completion = await in_daemon_thread(lambda: complete(prompt))
                text, cut_off = completion.text, completion.cut_off
                usage = {
                    "cost_usd": completion.cost_usd,
                    "input_tokens": completion.input_tokens,
                    "output_tokens": completion.output_tokens,
                    "calls": 1,
                }
        except (Exception, Interrupted) as error:
            outcome = "error" if isinstance(error, Exception) else "refused"  # cancelled while waiting for its turn
            attempts.finish(outcome, seconds=time.monotonic() - started, examples=0)
            raise
        if not isinstance(text, str):
            attempts.finish("error", seconds=time.monotonic() - started, usage=usage, examples=0)
            raise BadResponse(f"the model answered {type(text).__name__} instead of text")
        unpriced = int(usage is None or usage["cost_usd"] is None)
        attempts.finish("ok", seconds=time.monotonic() - started, usage=usage, unpriced=unpriced)
        self.journal.spending.add_examples(COMPLETION, 1)
        answer = CompletionEntry.of(text, cut_off=cut_off)
        return answer.to_json() if self.check is not None else answer.text


@dataclass(frozen=True)
class _Task:
    """One component of a job. `before`: its present text, None for what is no text of the candidate.

    `asked`: why an earlier answer could not be used.
    """

    job: int
    component: str
    prompt: Prompt
    form: AnswerForm
    before: str | None
    asked: UnusableReason | None = None
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of(self.prompt))

    @property
    def about(self) -> str:
        """The request in words."""
        again = "" if self.asked is None else f", as the first answer was {self.asked}"
        return f"reflect on {self.component!r}{again}, job {self.job}"

    def again(self, reason: UnusableReason, check: AnswerCheck) -> "_Task":
        """Return the task of asking once more."""
        prompt = self.form.asked_again(self.prompt, reason, check)
        return replace(self, prompt=prompt, form=self.form.again(reason), asked=reason)


class ProgramReflection(ReflectionStrategy):
    """Has the program make its own proposals (capability `proposals`), for all jobs of an iteration at the same time.

    For `gepa.optimize(adapter=adapter, reflection_strategy=ProgramReflection(adapter))` with a `sampling_strategy` that
    makes several proposals an iteration: without it GEPA calls the adapter's `propose_new_texts` for one after another.
    It sets `adapter.propose_new_texts` to None, as GEPA takes one of the two.

    Failures of the program propose nothing and are kept in the adapter's `failures`; anything else interrupts the run,
    as GEPA would continue without proposals. `total_cost` is 0.0: the program's proposals report no cost. `check`: what
    a text must be; others are left out of the proposal.

    Raises:
        ValueError: the program proposes nothing.
    """

    total_cost = 0.0

    def __init__(self, adapter: RemoteAdapter, check: AnswerCheck | None = None) -> None:
        if not adapter.offers("proposals"):
            raise ValueError("the program does not propose new texts (capability `proposals`); give a reflection model")
        self.adapter = adapter
        self.check = check
        self.failures = adapter.failures
        adapter.propose_new_texts = None

    def propose(self, jobs: Sequence[ReflectionJob]) -> list[TextProposal]:
        """Return the program's proposals."""
        first = self.adapter.journal.next_number
        found = [TextProposal({}, answers=[TextAnswer(component=None, number=first + at)]) for at in range(len(jobs))]
        for (candidate, *_), proposal, texts in zip(jobs, found, self.adapter.propose(jobs), strict=True):
            for name, text in () if isinstance(texts, Exception) else texts.items():
                reason = self._judged(text, candidate[name])
                if text is not None and reason is None:
                    proposal.new_texts[name] = text
                elif reason is not None:
                    proposal.unusable.append(
                        UnusableText(component=name, reason=reason, asked_again=False, dropped=True)
                    )
        return found

    def _judged(self, text: str | None, before: str) -> UnusableReason | None:
        if text is None:
            return "not text"
        return self.check.judged(text, before) if self.check else None


@dataclass
class ConcurrentDatasets:
    """A component selector, and a callback, of GEPA: it selects for all tasks of an iteration when GEPA first asks.

    GEPA selects components and makes the dataset of one task after another. The selection needs no dataset, so that
    those of all tasks are known, and the adapter requests them together. They are the same, in the same order.

    For `gepa.optimize(module_selector=datasets, callbacks=[*adapter.callbacks, datasets])`.

    `selector`: chooses the components, GEPA's default one by default. `perfect_score`: GEPA's setting; None if GEPA
    does not skip minibatches of perfect scores.
    """

    adapter: RemoteAdapter
    selector: ReflectionComponentSelector = field(default_factory=RoundRobinReflectionComponentSelector)
    perfect_score: float | None = 1.0
    _traced: list[tuple[int, list[Any], list[float]]] = field(default_factory=list, init=False)
    """Parents, their trajectories and scores, whose dataset GEPA will make in this iteration."""
    _selected: list[list[str]] = field(default_factory=list, init=False)
    """The components of the tasks that GEPA has yet to ask for."""

    def on_iteration_start(self, event: IterationStartEvent) -> None:  # noqa: ARG002 - GEPA's signature
        """Forget the iteration before, which may have failed."""
        self._traced, self._selected = [], []

    def on_evaluation_end(self, event: EvaluationEndEvent) -> None:
        """Note a parent's minibatch, unless GEPA will skip it."""
        parent, trajectories, scores = event["candidate_idx"], event["trajectories"], event["scores"]
        skipped = self.perfect_score is not None and all(score >= self.perfect_score for score in scores)
        if parent is not None and trajectories and not skipped:
            self._traced.append((parent, trajectories, scores))

    def __call__(
        self,
        state: GEPAState[Any, Any],
        trajectories: list[Any],
        subsample_scores: list[float],
        candidate_idx: int,
        candidate: dict[str, str],  # noqa: ARG002 - one of the state's
    ) -> list[str]:
        """Return the components that a task changes."""
        if not self._selected:
            traced = self._traced or [(candidate_idx, trajectories, subsample_scores)]  # without the callback: one
            self._traced = []
            jobs = []
            for parent, of_parent, scores in traced:
                texts = state.program_candidates[parent]
                jobs.append(DatasetJob(texts, of_parent, self.selector(state, of_parent, scores, parent, texts)))
            self._selected = [job.components for job in jobs]
            self.adapter.expect_datasets(jobs)
        return self._selected.pop(0)
