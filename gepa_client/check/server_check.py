"""Try a server on a few training rows before a run is paid for, and estimate the run."""

import asyncio
import contextlib
import functools
import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from evolverpc_common.model_prices import PriceTable, priced
from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.check_report import (
    CheckedExample,
    CheckReport,
    CheckStep,
    RunEstimate,
    StepName,
    StepVerdict,
    output_fault,
    spread_over,
)
from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Refused, RowsError, details, summary
from gepa_client.evolution.names import code_label, component_texts
from gepa_client.fleet.endpoints_file import Address
from gepa_client.fleet.handshake import differences
from gepa_client.gepa.litellm_model import sees
from gepa_client.gepa.rows import AnyRow, list_server_rows
from gepa_client.run import splits
from gepa_client.run.resolved_settings import endpoints, evolve_of, metric_call_budget, scorers
from gepa_client.settings.groups import Evolve
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import rpc_url
from gepa_client.transport.calls import CALL_TIMEOUT_S
from gepa_client.transport.event_loop import GroupTask, run_group
from gepa_client.transport.rpc import RESENDS, RpcClient
from protocol import DiscoverResult
from protocol.code import CODE_COMPONENTS, GIT_BRANCH
from protocol.errors import RpcError

ASSUMED_BUDGET = 1000
"""Metric calls of a run that nothing ends yet."""

TOLERATED = 0.10
"""The share of examples that may end in a system error: the infrastructure's, a time-out, or the program's."""

SYSTEM_ERRORS = ("infra_error", "timeout", "program_error", "cancelled")

Numbered = tuple[int, AnyRow]
"""A training row with its index among all of them."""


MORE_ROWS = 2
"""How many times the rows tried so far are added while every score is 0."""


class _StepFailed(Exception):
    """A step failed and nothing after it can be tried."""


async def check_server(config: RunConfig, examples: int, trying: Callable[[int], None] | None = None) -> CheckReport:
    """Handshake, up to `examples` training rows with traces, and one reflective dataset; spends no budget.

    While every score is 0 and nothing shows that the program is broken, more rows are tried, up to all of them, but
    never more than the run's own limits on metric calls and cost allow. Of several servers the first that answers is
    tried; those that do not are warnings. `trying` is called with a number of rows before they are tried. Servers that
    score are asked what they are, and nothing more. A step that fails ends only the steps that need it; after a fault
    in the settings no row is paid for.

    Raises:
        Refused, SettingsError: the settings cannot be used.
    """
    silent: list[CheckStep] = []
    named = endpoints(config)
    for number, at in enumerate(named):
        attempt = _ServerCheck(config, at.url, named[number + 1 :], examples, trying)
        rpc_url(at.url, allow_insecure=at.allow_insecure)
        try:
            client = RpcClient(
                at.url,
                token_file=at.token_file,
                proxy_token_file=at.proxy_token_file,
                allow_insecure=at.allow_insecure,
            )
        except Refused as error:  # its token: another server may have one
            attempt.reached = False
            attempt.failed("handshake", error)
        else:
            async with client as attempt.client:
                with contextlib.suppress(_StepFailed):
                    await attempt.go()
        if attempt.reached or attempt.fatal:
            attempt.steps = [step.model_copy(update={"verdict": "warning"}) for step in silent] + attempt.steps
            break
        silent += attempt.steps
        attempt.steps = silent
    return attempt.report()


class _ServerCheck:
    def __init__(
        self,
        config: RunConfig,
        url: str,
        others: Sequence[Address],
        examples: int,
        trying: Callable[[int], None] | None,
    ) -> None:
        self.config = config
        self.url = url
        self.others = others
        self.at_once = 0
        self.trying = trying
        self.wanted = examples
        self.client: RpcClient
        self.discovery: DiscoverResult | None = None
        self.prices = PriceTable(config.model_prices or {})
        self.evolve: Evolve = "prompts"
        self.steps: list[CheckStep] = []
        self.examples: list[CheckedExample] = []
        self.took: list[float] = []
        self.budget: int | None = None
        self.timing: RunEstimate | None = None
        self.reached = True
        self.fatal = False  # no other server would change what was found

    def report(self) -> CheckReport:
        known = self.discovery
        return CheckReport(
            url=self.url,
            program=known.program.name if known else None,
            server=f"{known.server.name} {known.server.version} ({known.server.language})" if known else None,
            steps=self.steps,
            examples=self.examples,
            timing=self.timing,
            evolve=self.evolve,
            reached=self.reached,
        )

    def note(self, name: StepName, verdict: StepVerdict, message: str, further: str | None = None) -> None:
        if verdict == "failed" and name.replace(" ", "_") in self.config.ignore_findings:
            verdict, message = "warning", f"{message} (ignored as --ignore-findings asks)"
        self.steps.append(CheckStep(name=name, verdict=verdict, message=message, details=further))

    def failed(self, name: StepName, error: Exception) -> None:
        """Note the error that ended a step."""
        breach = "the server breaks the contract: " if isinstance(error, BadResponse) else ""
        self.note(name, "failed", breach + summary(error), details(error) if isinstance(error, RpcError) else None)

    async def go(self) -> None:
        discovery = await self._handshake()
        self._code(discovery)
        await self._meet_scorers()
        await self._meet_others(discovery)
        rows = await self._rows(discovery)
        if any(step.verdict == "failed" for step in self.steps):
            self.note("evaluate", "skipped", "no row is tried until what failed is fixed")
        else:
            await self._try(discovery, rows)
        self._proposals(discovery)

    async def _try(self, discovery: DiscoverResult, rows: list[AnyRow]) -> None:
        """Run the seed on a few rows, on more if those cannot be judged, and make a reflective dataset."""
        untried = list(range(len(rows)))
        first = spread_over(untried, min(self.wanted, discovery.limits.max_batch_size))
        chosen = first
        results: list[dict[str, Any]] = []
        began = time.monotonic()
        try:
            while chosen:
                if self.trying is not None:
                    self.trying(len(chosen))
                results += await self._evaluate(discovery, [(at, rows[at]) for at in chosen], traced=not results)
                untried = sorted(set(untried) - set(chosen))
                chosen = self._more(discovery, results, untried)
        except (BadResponse, RpcError) as error:
            self.failed("evaluate", error)
            return
        if self.took:
            self._time(time.monotonic() - began)
        self._judge(discovery, results)
        await self._reflect(discovery, [(at, rows[at]) for at in first], results[: len(first)])

    def _more(self, discovery: DiscoverResult, results: list[dict[str, Any]], untried: list[int]) -> list[int]:
        """Return the rows to try next: none unless every score is 0 and more rows may have another score."""
        share = self._share_failed()
        if not _are_zero(results) or self.evolve != "prompts" or _is_blank(discovery) or output_fault(results):
            return []
        count = MORE_ROWS * len(results)
        if self.budget is not None:
            count = min(count, self.budget - len(results))
        if discovery.limits.whole_batches:
            count = min(count, discovery.limits.max_batch_size)
        spent = sum(example.cost_usd or 0.0 for example in self.examples)
        is_spent = self.config.max_cost_usd is not None and spent >= self.config.max_cost_usd
        return [] if share > TOLERATED or is_spent else spread_over(untried, max(count, 0))

    def _share_failed(self) -> float:
        return sum(example.status in SYSTEM_ERRORS for example in self.examples) / len(self.examples)

    async def _handshake(self) -> DiscoverResult:
        try:
            self.discovery = await self.client.discover()
        except (ClientError, RpcError) as error:
            self.reached = not isinstance(error, ConnectionLost)
            self.failed("handshake", error)
            raise _StepFailed from error
        program = self.discovery.program
        offered = ", ".join(self.discovery.capabilities) or "the core alone"
        self.note("handshake", "ok", f"components {', '.join(program.seed_candidate)}; the server offers {offered}")
        return self.discovery

    def _code(self, discovery: DiscoverResult) -> None:
        """Note what would be changed, code or prompts; nothing for a program without code."""
        offered = "commits" in discovery.capabilities, "mutations" in discovery.capabilities
        seed = code_label(discovery.program.seed_candidate) or "no commit"
        if all(offered) and self.config.reflection_lm is None and self.config.evolve != "prompts":
            self.evolve = self.config.evolve or "both"
            self.note("code", "warning", f"can evolve, from {seed}, once a --reflection-lm asks for changes")
            return
        try:
            self.evolve = evolve_of(self.config, discovery)
        except SettingsError as error:
            self.note("code", "failed", str(error))
            return
        if self.evolve != "prompts":
            self.note("code", "ok", f"evolves, from {seed} (no agent is called here)")
        elif all(offered):
            self.note("code", "ok", f"could evolve, from {seed}; --evolve prompts leaves it as it is")
        elif any(offered):
            self.note(
                "code", "ok", f"candidates name the commit that runs, now {seed}; the server does not change code"
            )

    async def _meet_scorers(self) -> None:
        """Check that the scoring servers can score."""
        named = scorers(self.config)
        if not named:
            return
        answers = await asyncio.gather(*map(_met, named))
        silent = [found for found in answers if not isinstance(found, DiscoverResult)]
        if len(silent) == len(answers):
            self.reached, self.fatal = False, True
            self.note("scores", "failed", f"no scoring server is reachable: {'; '.join(map(summary, silent))}")
            return
        if not any(isinstance(found, DiscoverResult) and "scoring" in found.capabilities for found in answers):
            urls = ", ".join(self.config.score_with)
            self.note("scores", "failed", f"{urls}, given to score, does not offer `score` (capability `scoring`)")
        for error in silent:
            self.note("scores", "warning", f"one of the servers that score: {summary(error)}")

    async def _meet_others(self, discovery: DiscoverResult) -> None:
        """Count the examples that all servers together run at once."""
        self.at_once = discovery.limits.max_concurrency
        answers = await asyncio.gather(*(_met(at, resends=0) for at in self.others))
        for at, found in zip(self.others, answers, strict=True):
            if not isinstance(found, DiscoverResult):
                self.note("handshake", "warning", summary(found))
                continue
            self.at_once += found.limits.max_concurrency
            mixed = self.config.allow_mixed_programs
            if different := differences(discovery, found, (), allow_mixed_programs=mixed):
                self.note("handshake", "failed", f"{at.url} does not serve the same: {'; '.join(different)}")

    async def _rows(self, discovery: DiscoverResult) -> list[AnyRow]:
        """Return all training rows; none if they cannot be read."""
        held = {split: info.size for split, info in discovery.datasets.items()}
        try:
            fetch = functools.partial(list_server_rows, self.client)
            rows = await splits.training_rows(self.config, held, fetch)
            val = None
            if self.config.auto is not None or self.config.max_full_evals is not None:
                val = await splits.rows_of(splits.sources(self.config, held)["val"], "valset", held, fetch)
        except (SettingsError, RowsError) as error:
            self.note("rows", "failed", str(error))
            return []
        except (ClientError, RpcError) as error:
            self.failed("rows", error)
            return []
        self.budget = metric_call_budget(
            self.config,
            texts=len(component_texts(discovery.program.seed_candidate)),
            train=len(rows),
            val=len(val) if val is not None else None,
        )
        count = min(self.wanted, discovery.limits.max_batch_size, len(rows))
        self.note("rows", "ok", f"{count} of {len(rows)} training rows of {splits.train_name(self.config, held)}")
        return list(rows)

    async def _evaluate(self, discovery: DiscoverResult, rows: list[Numbered], *, traced: bool) -> list[dict[str, Any]]:
        """Return one result per row; a lost call counts as an `infra_error`.

        Raises:
            BadResponse, RpcError: the server breaks the contract, or cannot run the program at all.
        """
        group = uuid.uuid4().hex if traced and self.client.offers("refs") else None
        results: list[dict[str, Any]] = [{}] * len(rows)

        async def evaluate(start: int, batch: list[Numbered], job: GroupTask) -> None:
            job.begun = True
            began = time.monotonic()
            try:
                answer = await self.client.evaluate(
                    discovery.program.seed_candidate,
                    [row.wire for _, row in batch],
                    capture_traces=traced,
                    call_id=self._call_id(),
                    group=group,
                    timeout_s=self.client.evaluation_timeout_s(len(batch)),
                )
            except (ConnectionLost, RpcError) as error:
                if isinstance(error, RpcError) and not error.retryable:
                    raise
                lost = {"type": type(error).__name__, "message": str(error)}
                results[start : start + len(batch)] = [
                    {"status": "infra_error", "score": None, "seconds": 0.0, "error": lost}
                ] * len(batch)
                return
            self.took.append((time.monotonic() - began) / len(batch))
            for at, result in enumerate(answer["results"], start):
                usage = result.get("usage")
                results[at] = {**result, "usage": priced(usage, self.prices)} if usage else result

        width = len(rows) if discovery.limits.whole_batches else 1
        jobs = [GroupTask(functools.partial(evaluate, at, rows[at : at + width])) for at in range(0, len(rows), width)]
        await run_group(jobs, discovery.limits.max_concurrency)
        self.examples += [_checked(at, row, result) for (at, row), result in zip(rows, results, strict=True)]
        return results

    def _call_id(self) -> str | None:
        return uuid.uuid4().hex if self.client.offers("idempotency") else None

    def _time(self, all_s: float) -> None:
        costs = [example.cost_usd for example in self.examples if example.cost_usd is not None]
        budget = self.budget if self.config.ends else ASSUMED_BUDGET
        each_s = _mean(self.took)
        at_once = self.at_once
        minibatch = min(self.config.reflection_minibatch_size or 3, at_once)
        each_usd = _mean(costs) if costs else None
        self.timing = RunEstimate(
            example_s=each_s,
            slowest_s=max(self.took),
            all_s=all_s,
            at_once=at_once,
            budget=budget,
            run_s=(budget * each_s / at_once, budget * each_s / minibatch) if budget is not None else None,
            example_usd=each_usd,
            run_usd=budget * each_usd if each_usd is not None and budget is not None else None,
        )

    def _judge(self, discovery: DiscoverResult, results: list[dict[str, Any]]) -> None:
        failed = [example for example in self.examples if example.status in SYSTEM_ERRORS]
        share = self._share_failed()
        kinds = ", ".join(
            f"{count} {kind}" for kind in SYSTEM_ERRORS if (count := sum(example.status == kind for example in failed))
        )
        if (
            share > TOLERATED
            and all(example.status == "program_error" for example in failed)
            and self.evolve != "prompts"
        ):
            message = f"the program fails on {len(failed)} of {len(self.examples)}; code mutations may fix that"
            self.note("evaluate", "warning", message)
        elif share > TOLERATED and all(example.status == "program_error" for example in failed):
            message = f"the program failed on {len(failed)} of {len(self.examples)} examples; 10 % are tolerated"
            self.note("evaluate", "failed", message)
        elif share > TOLERATED:
            message = (
                f"{len(failed)} of {len(self.examples)} examples ended in a system error ({kinds}); 10 % are tolerated"
            )
            self.note("evaluate", "failed", message)
        elif failed:
            self.note("evaluate", "warning", f"{len(failed)} of {len(self.examples)} examples failed ({kinds})")
        else:
            self.note("evaluate", "ok", f"{len(self.examples)} examples, none failed")
        scores = [example.score for example in self.examples if example.score is not None]
        if any(result["status"] == "rollout" for result in results):
            self._unscored()
        elif not scores:
            self.note("scores", "skipped", "no example has a score")
        elif any(scores):
            low, mean, high = min(scores), _mean(scores), max(scores)
            self.note("scores", "ok", f"{low:g} to {high:g}, mean {mean:.3g}")
        else:
            self._all_zero(discovery, results)

    def _unscored(self) -> None:
        if self.config.score_with:
            self.note("scores", "ok", f"by {', '.join(self.config.score_with)} (not called here)")
            return
        self.note(
            "scores",
            "failed",
            "the program has no score function: name a server that scores its results with --score-with URL",
        )

    def _all_zero(self, discovery: DiscoverResult, results: list[dict[str, Any]]) -> None:
        """Judge scores that are all 0: an error only if the outputs show that something is broken."""
        if _is_blank(discovery):
            names = ", ".join(component_texts(discovery.program.seed_candidate))
            message = f"the seed's texts are empty ({names}), so every score is 0: nothing to worry about"
            self.note("scores", "ok", message)
        elif self.evolve != "prompts":
            message = "every score is 0: a code mutation may fix that, if the score function is right"
            self.note("scores", "warning", message)
        elif (fault := output_fault(results)) is not None:
            self.note(
                "scores",
                "failed",
                f"every score is 0 and {fault}: look at the outputs above and at the score function. If both are "
                "right, --ignore-findings scores starts a run all the same",
            )
        else:
            self.note(
                "scores",
                "warning",
                f"every score is 0 on the {len(results)} rows tried: a run learns nothing until a candidate scores "
                "above 0 somewhere. Is the score function right?",
            )

    async def _reflect(self, discovery: DiscoverResult, rows: list[Numbered], results: list[dict[str, Any]]) -> None:
        """Make a reflective dataset for the first component, from all examples with a result."""
        seed = discovery.program.seed_candidate
        texts = [name for name in seed if name not in CODE_COMPONENTS]
        component = texts[0] if texts and self.evolve != "code" else GIT_BRANCH
        usable = [
            (row.wire, result)
            for (_, row), result in zip(rows, results, strict=True)
            if result["status"] in ("ok", "program_error", "timeout")
        ]
        if not usable:
            self.note("reflective dataset", "skipped", "no example has a verdict")
            return
        params = {
            "candidate": discovery.program.seed_candidate,
            "eval_batch": {"batch": [example for example, _ in usable], "results": [result for _, result in usable]},
            "components_to_update": [component],
        }
        try:
            answer = await self.client.make_reflective_dataset(
                params, call_id=self._call_id(), timeout_s=CALL_TIMEOUT_S
            )
        except (ClientError, RpcError) as error:
            self.failed("reflective dataset", error)
            return
        records = answer.dataset.get(component)
        if not records:
            self.note(
                "reflective dataset", "failed", f"no records for {component}: reflection would have nothing to read"
            )
            return
        size = len(json.dumps(records, ensure_ascii=False))
        about = f"{len(records)} records for {component}, {size:,} characters"
        if answer.images:
            self._images(f"{about}, {len(answer.images)} different images")
        else:
            self.note("reflective dataset", "ok", about)

    def _images(self, about: str) -> None:
        """Judge records with images by the model that reads them."""
        model = self.config.reflection_lm
        seen = sees(model) if model is not None else True
        if seen:
            self.note("reflective dataset", "ok", about)
        elif seen is None:
            self.note("reflective dataset", "warning", f"{about}; it is not known whether {model} takes images")
        else:
            message = f"{about}, but {model} takes no images: name a model that does with --reflection-lm"
            self.note("reflective dataset", "failed", message)

    def _proposals(self, discovery: DiscoverResult) -> None:
        if self.config.reflection_lm is not None:
            self.note("proposals", "ok", f"by {self.config.reflection_lm} (not called here)")
        elif "proposals" in discovery.capabilities:
            self.note("proposals", "ok", "by the program itself (not called here)")
        else:
            self.note("proposals", "warning", "no proposer of new texts yet: a run needs --reflection-lm")


def _are_zero(results: list[dict[str, Any]]) -> bool:
    """Return whether something was scored, everything with 0, and no result waits for another server's score."""
    scores = [result["score"] for result in results if result["score"] is not None]
    return bool(scores) and not any(scores) and not any(result["status"] == "rollout" for result in results)


def _is_blank(discovery: DiscoverResult) -> bool:
    """Return whether the seed has texts and all of them are empty."""
    texts = component_texts(discovery.program.seed_candidate)
    return bool(texts) and not any(text.strip() for text in texts.values())


async def _met(at: Address, resends: int = RESENDS) -> DiscoverResult | Exception:
    """Return a server's description, or why it is unavailable."""
    try:
        async with RpcClient(
            at.url, token_file=at.token_file, proxy_token_file=at.proxy_token_file, allow_insecure=at.allow_insecure
        ) as client:
            return await client.discover(resends=resends)
    except (ClientError, RpcError) as error:
        return error


def _mean(values: list[float]) -> float:
    """Return the mean, without the sum, which may be infinite although every value is finite."""
    return sum(value / len(values) for value in values)


_STEPS = {
    "program_error": "program",
    "timeout": "deadline",
    "infra_error": "infrastructure",
    "cancelled": "cancelled",
    "rollout": "score",
}


def _checked(at: int, row: AnyRow, result: dict[str, Any]) -> CheckedExample:
    error = result.get("error") or {}
    step = "result" if error.get("type") == "invalid_result" else _STEPS.get(result["status"])
    further = [text for key in ("traceback", "log") if (text := error.get(key))]
    return CheckedExample(
        row=at,
        id=row.id,
        status=result["status"],
        score=result["score"],
        seconds=result["seconds"],
        input=row.data,
        output=result.get("output"),
        step=step,
        error=f"{error.get('type')}: {error.get('message')}" if error else None,
        details="\n".join(further) or None,
        cost_usd=(result.get("usage") or {}).get("cost_usd"),
    )
