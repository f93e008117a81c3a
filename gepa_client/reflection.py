"""GEPA reflection strategies that ask for an iteration's proposals all at once, and lose none to another's failure."""

import functools
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self

from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from gepa_client.adapter import RemoteAdapter
from gepa_client.causes import summary
from gepa_client.errors import BadResponse, ClientError, Interrupted
from gepa_client.failures import Failures
from gepa_client.window import run_window
from protocol.errors import ProgramFailed, RpcError

LanguageModel = Callable[[str | list[dict[str, Any]]], str]
Prompt = str | list[dict[str, Any]]
Records = Mapping[str, Sequence[Mapping[str, Any]]]

WHERE = "reflection"


class ConcurrentReflection:
    """Asks a language model, with GEPA's own prompts, for every (job, component) of an iteration at the same time.

    The same prompts and texts as GEPA's `StatelessReflectionLM`, in the same order. A job with a request that failed
    proposes nothing and its cause is kept in `failures`; an interruption raised by the model passes through.

    `lm`: takes a prompt or chat messages and returns text; must bear calls from several threads. `prompt_template`:
    one for all components, or one per component name. `max_workers`: requests at once.

    Raises:
        ValueError: a template lacks `<curr_param>` or `<side_info>`.
    """

    def __init__(
        self,
        lm: LanguageModel,
        prompt_template: str | dict[str, str] | None = None,
        max_workers: int = 10,
        failures: Failures | None = None,
    ) -> None:
        for template in prompt_template.values() if isinstance(prompt_template, dict) else [prompt_template]:
            InstructionProposalSignature.validate_prompt_template(template)
        self.lm = lm
        self.prompt_template = prompt_template
        self.max_workers = max_workers
        self.failures = Failures() if failures is None else failures

    @property
    def total_cost(self) -> float:
        """USD the model says it has cost so far; 0.0 for one that does not say."""
        return float(getattr(self.lm, "total_cost", 0.0))

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[ReflectionProposal, Self]:
        """One job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[ReflectionProposal, Self]]:
        """One proposal per job, in order; empty for a job that failed. Raises no `Exception`."""
        tasks = [
            (at, name) for at, (_, records, components) in enumerate(jobs) for name in components if records.get(name)
        ]
        answers = _all_at_once([functools.partial(self._ask, jobs[at], name) for at, name in tasks], self.max_workers)
        proposals = [ReflectionProposal({}) for _ in jobs]
        failed: set[int] = set()
        for (at, name), answer in zip(tasks, answers, strict=True):
            error = answer.exception()
            if isinstance(error, Exception):
                self.failures.record(WHERE, error)
                failed.add(at)
                continue
            prompt, raw, text = answer.result()  # raises what is no Exception: an interruption
            proposals[at].new_texts[name] = text
            proposals[at].prompts[name] = prompt
            proposals[at].raw_lm_outputs[name] = raw
        return [(ReflectionProposal({}) if at in failed else found, self) for at, found in enumerate(proposals)]

    def _ask(self, job: ReflectionJob, name: str) -> tuple[Prompt, str, str]:
        """Prompt, raw answer and new text for one component."""
        candidate, records, _ = job
        template = self.prompt_template
        prompt = InstructionProposalSignature.prompt_renderer(
            {
                "current_instruction_doc": candidate[name],
                "dataset_with_feedback": records[name],
                "prompt_template": template.get(name) if isinstance(template, dict) else template,
            }
        )
        raw = self.lm(prompt)
        return prompt, raw, InstructionProposalSignature.output_extractor(raw.strip())["new_instruction"]


class ProgramReflection:
    """Asks the program for its own proposals (capability `proposals`), for all jobs of an iteration at the same time.

    For `gepa.optimize(adapter=adapter, reflection_strategy=ProgramReflection(adapter))`.

    Failures of the program propose nothing and are kept in the adapter's `failures`; anything else interrupts the run,
    as GEPA would go on without proposals. `total_cost` is 0.0: the program's proposals report no cost.

    Raises:
        ValueError: the program proposes nothing.
    """

    total_cost = 0.0

    def __init__(self, adapter: RemoteAdapter) -> None:
        if not adapter.client.offers("proposals"):
            raise ValueError("the program does not propose new texts (capability `proposals`); give a reflection model")
        self.adapter = adapter
        self.failures = adapter.failures

    def reflect(
        self, candidate: dict[str, str], reflective_dataset: Records, components_to_update: list[str]
    ) -> tuple[ReflectionProposal, Self]:
        """One job of `reflect_many`."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(self, jobs: Sequence[ReflectionJob]) -> list[tuple[ReflectionProposal, Self]]:
        """One proposal per job, in order; empty for a job that failed. Raises no `Exception`."""
        proposals = [ReflectionProposal({}) for _ in jobs]
        try:
            self.adapter.wait_for(self._propose(jobs, proposals))
        except (RpcError, ClientError) as error:
            raise Interrupted("failed", f"propose_new_texts: {summary(error)}") from error
        return [(proposal, self) for proposal in proposals]

    async def _propose(self, jobs: Sequence[ReflectionJob], into: list[ReflectionProposal]) -> None:
        failed: dict[int, ProgramFailed | BadResponse] = {}

        async def one(at: int) -> None:
            candidate, records, components = jobs[at]
            params = {
                "candidate": candidate,
                "reflective_dataset": {name: [dict(record) for record in found] for name, found in records.items()},
                "components_to_update": components,
            }
            try:
                texts = await self.adapter.ask(
                    "propose_new_texts",
                    lambda call_id: self.adapter.client.propose_new_texts(
                        params, call_id=call_id, timeout_s=self.adapter.call_timeout_s
                    ),
                )
                unasked = sorted(set(texts) - set(components))
                if unasked:
                    raise BadResponse(f"the program proposed texts nobody asked for: {', '.join(unasked)}")
                into[at] = ReflectionProposal(texts)
            except (ProgramFailed, BadResponse) as error:
                failed[at] = error

        width = self.adapter.discovery.limits.max_concurrency
        await run_window(width, [functools.partial(one, at) for at in range(len(jobs))])
        for at in sorted(failed):  # in the order of the jobs, whichever failed first
            self.failures.record(WHERE, failed[at])


Answer = tuple[Prompt, str, str]


def _all_at_once(calls: Sequence[Callable[[], Answer]], max_workers: int) -> list["Future[Answer]"]:
    """Make the calls on at most `max_workers` threads; every future is done.

    Daemon threads rather than an executor: an interrupted run must not wait at exit for a model's slow answer.
    """
    futures: list[Future[Answer]] = [Future() for _ in calls]
    waiting: queue.SimpleQueue[tuple[Future[Answer], Callable[[], Answer]]] = queue.SimpleQueue()
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
