"""GEPA reflection strategies that make all proposals of an iteration at once; one failure does not lose the others."""

import functools
import queue
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from gepa_client.errors import BadResponse
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.hooks import Failures
from gepa_client.gepa.record_budget import FittedRecords, RecordBudget
from gepa_client.gepa.reflective_datasets import Records, images_described
from gepa_client.journal.entries import COMPLETION
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import RecordedRequest, digest_of, request_key

LanguageModel = Callable[[str | list[dict[str, Any]]], str]
Prompt = str | list[dict[str, Any]]

WHERE = "reflection"


class _ReflectionStrategy(ABC):
    """GEPA's interface of a reflection strategy, over `propose`."""

    @abstractmethod
    def propose(self, jobs: Sequence[ReflectionJob]) -> list[ReflectionProposal]: ...

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[ReflectionProposal, Self]:
        """Do one job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[ReflectionProposal, Self]]:
        """Return one proposal per job, in order; empty for a job that failed. Raises no `Exception`."""
        return [(proposal, self) for proposal in self.propose(jobs)]


class ConcurrentReflection(_ReflectionStrategy):
    """Prompts a language model, with GEPA's own prompts, for every (job, component) of an iteration at the same time.

    It uses the same prompts as GEPA's `StatelessReflectionLM`, in the same order. A job with a failed request proposes
    nothing, and the cause is kept in `failures`; an interruption raised by the model passes through.

    `lm`: takes a prompt or chat messages and returns text; must support calls from several threads. If it has a method
    `complete`, as `LiteLLMModel` has, that is called and its cost is counted. `prompt_template`: one for all
    components, or one per component name. `max_workers`: requests at once. `journal`: has the answers of earlier
    processes of the same run, and records new ones. `budget`: of tokens, without a limit by default.
    `shows_images`: False for a model that takes none, which then reads their type and size.

    Raises:
        ValueError: a template lacks `<curr_param>` or `<side_info>`.
    """

    def __init__(
        self,
        lm: LanguageModel,
        prompt_template: str | dict[str, str] | None = None,
        max_workers: int = 20,
        failures: Failures | None = None,
        journal: Journal | None = None,
        budget: RecordBudget | None = None,
        *,
        shows_images: bool = True,
    ) -> None:
        for template in prompt_template.values() if isinstance(prompt_template, dict) else [prompt_template]:
            InstructionProposalSignature.validate_prompt_template(template)
        self.lm = lm
        self.prompt_template = prompt_template
        self.max_workers = max_workers
        self.failures = Failures() if failures is None else failures
        self.journal = journal or Journal(uuid.uuid4().hex)
        self.budget = budget or RecordBudget()
        self.shows_images = shows_images

    @property
    def total_cost(self) -> float:
        """The known cost of its answers in USD, in every process of the run."""
        return self.journal.spending[COMPLETION].cost_usd

    def propose(
        self, jobs: Sequence[ReflectionJob], given: Mapping[tuple[int, str], Prompt] | None = None
    ) -> list[ReflectionProposal]:
        """Return the proposals of `reflect_many`. `given`: prompts by job and component, in place of GEPA's own."""
        tasks: list[tuple[int, str, Prompt, str]] = []
        proposals = [ReflectionProposal({}) for _ in jobs]
        failed: set[int] = set()
        for at, (candidate, records, components) in enumerate(jobs):
            try:
                prompts = {
                    name: (given or {}).get((at, name)) or self._prompt(candidate, records, name)
                    for name in components
                    if records.get(name)
                }
                asked = [(at, name, prompt, digest_of(prompt)) for name, prompt in prompts.items()]
            except Exception as error:  # noqa: BLE001 - records that cannot be rendered cost their job its proposal
                self.failures.record(WHERE, error)
                failed.add(at)
            else:
                tasks += asked
        for (at, name, prompt, _), text in zip(tasks, self._answers(tasks), strict=True):
            if isinstance(text, Exception):
                self.failures.record(WHERE, text)
                failed.add(at)
                continue
            proposals[at].new_texts[name] = InstructionProposalSignature.output_extractor(text.strip())[
                "new_instruction"
            ]
            proposals[at].prompts[name] = prompt
            proposals[at].raw_lm_outputs[name] = text
        return [ReflectionProposal({}) if at in failed else found for at, found in enumerate(proposals)]

    def fitted(self, candidate: Mapping[str, str], records: Records, name: str) -> FittedRecords:
        """Return the records of a component as its prompt shows them."""
        template = self._template(name) or InstructionProposalSignature.default_prompt_template
        return self.budget.fit(self.shown(records[name]), template + candidate[name])

    def shown(self, records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the records with images only if the model takes them."""
        return records if self.shows_images else images_described(records)

    def _template(self, name: str) -> str | None:
        template = self.prompt_template
        return template.get(name) if isinstance(template, dict) else template

    def _prompt(self, candidate: Mapping[str, str], records: Records, name: str) -> Prompt:
        rendered: Prompt = InstructionProposalSignature.prompt_renderer(
            {
                "current_instruction_doc": candidate[name],
                "dataset_with_feedback": self.fitted(candidate, records, name).records,
                "prompt_template": self._template(name),
            }
        )
        return rendered

    def _answers(self, tasks: Sequence[tuple[int, str, Prompt, str]]) -> list[str | Exception]:
        """Return the model's answer to each prompt, or its exception; recorded ones are not requested again."""
        keys = [request_key(COMPLETION, f"reflect on {name!r}, job {at}", digest) for at, name, _, digest in tasks]
        requests = self.journal.ask(keys)
        missing = [at for at, request in enumerate(requests) if request.entry is None]
        answers: list[Any] = [
            None if request.entry is None else request.failure or request.answer for request in requests
        ]
        if not missing:
            return answers
        with self.journal.executing(requests):
            calls = [functools.partial(self._complete, requests[at], tasks[at][2]) for at in missing]
            for at, done in zip(missing, _call_in_threads(calls, self.max_workers), strict=True):
                error = done.exception()
                if error is None:
                    answers[at] = done.result()
                elif isinstance(error, Exception):
                    self.journal.fail(requests[at], error)
                    answers[at] = error
                else:
                    answers[at] = error  # an interruption: raised when everything that came is recorded
            self.journal.settle()
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                    raise answer
        return answers

    def _complete(self, request: RecordedRequest, prompt: Prompt) -> str:
        """Return one answer, recorded with its cost as soon as it arrives."""
        attempts = self.journal.attempts(request, COMPLETION)
        attempts.start_now(str(getattr(self.lm, "name", type(self.lm).__name__)))
        self.journal.settle()  # a request that is paid for stays recorded, however this process ends
        started = time.monotonic()
        complete = getattr(self.lm, "complete", None)
        try:
            if complete is None:
                text, usage = self.lm(prompt), None
            else:
                completion = complete(prompt)
                text = completion.text
                usage = {
                    "cost_usd": completion.cost_usd,
                    "input_tokens": completion.input_tokens,
                    "output_tokens": completion.output_tokens,
                    "calls": 1,
                }
        except BaseException as error:
            outcome = "error" if isinstance(error, Exception) else "refused"  # cancelled while waiting for its turn
            attempts.finish(outcome, seconds=time.monotonic() - started, examples=0)
            raise
        if not isinstance(text, str):
            attempts.finish("error", seconds=time.monotonic() - started, usage=usage, examples=0)
            raise BadResponse(f"the model answered {type(text).__name__} instead of text")
        unpriced = int(usage is None or usage["cost_usd"] is None)
        attempts.finish("ok", seconds=time.monotonic() - started, usage=usage, unpriced=unpriced)
        self.journal.spending.add_examples(COMPLETION, 1)
        [seen] = self.journal.record((request, text.encode("utf-8", "backslashreplace").decode()))
        return str(seen)


class ProgramReflection(_ReflectionStrategy):
    """Has the program make its own proposals (capability `proposals`), for all jobs of an iteration at the same time.

    For `gepa.optimize(adapter=adapter, reflection_strategy=ProgramReflection(adapter))` with a `sampling_strategy` that
    makes several proposals an iteration: without it GEPA calls the adapter's `propose_new_texts` for one after another.
    It sets `adapter.propose_new_texts` to None, as GEPA takes one of the two.

    Failures of the program propose nothing and are kept in the adapter's `failures`; anything else interrupts the run,
    as GEPA would continue without proposals. `total_cost` is 0.0: the program's proposals report no cost.

    Raises:
        ValueError: the program proposes nothing.
    """

    total_cost = 0.0

    def __init__(self, adapter: RemoteAdapter) -> None:
        if not adapter.offers("proposals"):
            raise ValueError("the program does not propose new texts (capability `proposals`); give a reflection model")
        self.adapter = adapter
        self.failures = adapter.failures
        adapter.propose_new_texts = None

    def propose(self, jobs: Sequence[ReflectionJob]) -> list[ReflectionProposal]:
        """Return the program's proposals."""
        texts = self.adapter.propose(jobs)
        return [ReflectionProposal({} if isinstance(each, Exception) else each) for each in texts]


def _call_in_threads(calls: Sequence[Callable[[], str]], max_workers: int) -> list["Future[str]"]:
    """Make the calls on at most `max_workers` threads; return their futures, all done.

    Daemon threads instead of an executor: an interrupted run must not wait at exit for a model's slow answer.
    """
    futures: list[Future[str]] = [Future() for _ in calls]
    waiting: queue.SimpleQueue[tuple[Future[str], Callable[[], str]]] = queue.SimpleQueue()
    for pair in zip(futures, calls, strict=True):
        waiting.put(pair)

    def work() -> None:
        while True:
            try:
                future, call = waiting.get_nowait()
            except queue.Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                future.set_exception(error)

    for _ in range(min(max_workers, len(calls))):
        threading.Thread(target=work, name="reflection", daemon=True).start()
    try:
        for future in futures:
            future.exception()
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return futures
