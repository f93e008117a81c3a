"""GEPA reflection strategies that ask for an iteration's proposals all at once, and lose none to another's failure."""

import functools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from gepa_client.errors import BadResponse
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.failures import Failures
from gepa_client.gepa.proposals import Records
from gepa_client.journal.entries import COMPLETION
from gepa_client.journal.journal import Journal, Slot
from gepa_client.journal.requests import digest_of, other_request

LanguageModel = Callable[[str | list[dict[str, Any]]], str]
Prompt = str | list[dict[str, Any]]

WHERE = "reflection"


class ConcurrentReflection:
    """Asks a language model, with GEPA's own prompts, for every (job, component) of an iteration at the same time.

    The same prompts and texts as GEPA's `StatelessReflectionLM`, in the same order. A job with a request that failed
    proposes nothing and its cause is kept in `failures`; an interruption raised by the model passes through.

    `lm`: takes a prompt or chat messages and returns text; must bear calls from several threads. Where it has a method
    `complete`, as `LiteLLMModel` has, that is called and what it cost is counted. `prompt_template`: one for all
    components, or one per component name. `max_workers`: requests at once. `journal`: knows the answers of earlier
    processes of the same run, and records these.

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
    ) -> None:
        for template in prompt_template.values() if isinstance(prompt_template, dict) else [prompt_template]:
            InstructionProposalSignature.validate_prompt_template(template)
        self.lm = lm
        self.prompt_template = prompt_template
        self.max_workers = max_workers
        self.failures = Failures() if failures is None else failures
        self.journal = journal or Journal(uuid.uuid4().hex)

    @property
    def total_cost(self) -> float:
        """USD its answers have cost so far, in every process of the run; 0.0 where nobody says."""
        return self.journal.spend[COMPLETION].cost_usd

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[ReflectionProposal, Self]:
        """One job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[ReflectionProposal, Self]]:
        """One proposal per job, in order; empty for a job that failed. Raises no `Exception`."""
        return [(proposal, self) for proposal in self.propose(jobs)]

    def propose(
        self, jobs: Sequence[ReflectionJob], given: Mapping[tuple[int, str], Prompt] | None = None
    ) -> list[ReflectionProposal]:
        """The proposals of `reflect_many`. `given`: prompts by job and component, in place of GEPA's own."""
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
        for (at, name, prompt, _), slot in zip(tasks, self._answers(tasks), strict=True):
            if isinstance(slot, Exception):
                self.failures.record(WHERE, slot)
                failed.add(at)
                continue
            proposals[at].new_texts[name] = InstructionProposalSignature.output_extractor(slot.strip())[
                "new_instruction"
            ]
            proposals[at].prompts[name] = prompt
            proposals[at].raw_lm_outputs[name] = slot
        return [ReflectionProposal({}) if at in failed else found for at, found in enumerate(proposals)]

    def _prompt(self, candidate: Mapping[str, str], records: Records, name: str) -> Prompt:
        template = self.prompt_template
        rendered: Prompt = InstructionProposalSignature.prompt_renderer(
            {
                "current_instruction_doc": candidate[name],
                "dataset_with_feedback": records[name],
                "prompt_template": template.get(name) if isinstance(template, dict) else template,
            }
        )
        return rendered

    def _answers(self, tasks: Sequence[tuple[int, str, Prompt, str]]) -> list[str | Exception]:
        """What the model says to each prompt, or why it does not; recorded, or recorded now."""
        requests = [
            other_request(COMPLETION, f"reflect on {name!r}, job {at}", digest) for at, name, _, digest in tasks
        ]
        slots = self.journal.ask(requests)
        missing = [at for at, slot in enumerate(slots) if slot.entry is None]
        answers: list[Any] = [None if slot.entry is None else slot.failure or slot.answer for slot in slots]
        if not missing:
            return answers
        with self.journal.live(slots):
            calls = [functools.partial(self._complete, slots[at], tasks[at][2]) for at in missing]
            for at, done in zip(missing, _all_at_once(calls, self.max_workers), strict=True):
                error = done.exception()
                if error is None:
                    answers[at] = done.result()
                elif isinstance(error, Exception):
                    self.journal.fail(slots[at], error)
                    answers[at] = error
                else:
                    answers[at] = error  # an interruption: raised when everything that came is recorded
            self.journal.settle()
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                    raise answer
        return answers

    def _complete(self, slot: Slot, prompt: Prompt) -> str:
        """One answer, its cost counted; recorded when it comes, however long others take."""
        attempts = self.journal.attempts(slot, COMPLETION)
        attempts.begin(str(getattr(self.lm, "name", type(self.lm).__name__)))
        self.journal.settle()  # a request that is paid for leaves a trace, whatever ends this process
        began = time.monotonic()
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
            outcome = "error" if isinstance(error, Exception) else "refused"  # stopped while it waited for its turn
            attempts.ended(outcome, seconds=time.monotonic() - began, examples=0)
            raise
        if not isinstance(text, str):
            attempts.ended("error", seconds=time.monotonic() - began, usage=usage, examples=0)
            raise BadResponse(f"the model answered {type(text).__name__} instead of text")
        unpriced = int(usage is None or usage["cost_usd"] is None)
        attempts.ended("ok", seconds=time.monotonic() - began, usage=usage, unpriced=unpriced)
        self.journal.spend.done(COMPLETION, 1)
        [seen] = self.journal.record((slot, text.encode("utf-8", "backslashreplace").decode()))
        return str(seen)


class ProgramReflection:
    """Asks the program for its own proposals (capability `proposals`), for all jobs of an iteration at the same time.

    For `gepa.optimize(adapter=adapter, reflection_strategy=ProgramReflection(adapter))` with a `sampling_strategy` that
    makes several proposals an iteration: without it GEPA calls the adapter's `propose_new_texts` for one after another.
    It sets `adapter.propose_new_texts` to None, as GEPA takes one of the two.

    Failures of the program propose nothing and are kept in the adapter's `failures`; anything else interrupts the run,
    as GEPA would go on without proposals. `total_cost` is 0.0: the program's proposals report no cost.

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

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[ReflectionProposal, Self]:
        """One job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[ReflectionProposal, Self]]:
        """One proposal per job, in order; empty for a job that failed. Raises no `Exception`."""
        return [
            (ReflectionProposal({} if isinstance(texts, Exception) else texts), self)
            for texts in self.adapter.propose(jobs)
        ]


def _all_at_once(calls: Sequence[Callable[[], str]], max_workers: int) -> list["Future[str]"]:
    """Make the calls on at most `max_workers` threads; every future is done.

    Daemon threads rather than an executor: an interrupted run must not wait at exit for a model's slow answer.
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
            except BaseException as error:  # noqa: BLE001 - kept in the future for whoever waits on it
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
