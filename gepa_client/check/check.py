"""Tries a server on a few training rows before a run is paid for, and says what the run would meet and take."""

import asyncio
import contextlib
import functools
import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from gepa_client.address import rpc_url
from gepa_client.causes import details, summary
from gepa_client.check.outcome import CheckedExample, CheckReport, Step, Timing, Verdict
from gepa_client.code import Evolve
from gepa_client.code.named import code_of, texts_of
from gepa_client.deadlines import CALL_TIMEOUT_S, evaluation_s
from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Refused, RowsError
from gepa_client.fleet.roster import Address
from gepa_client.held import held_rows
from gepa_client.jobs import Job, run_all
from gepa_client.rows import AnyRow
from gepa_client.rpc import RESENDS, RpcClient
from gepa_client.run import splits
from gepa_client.run.config import RunConfig
from gepa_client.run.endpoints import endpoints, scorers
from gepa_client.run.settings import SettingsError
from gepa_client.run.what_evolves import evolve_of
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


class _Stop(Exception):
    """A step failed and nothing after it can be tried."""


async def check(config: RunConfig, examples: int, trying: Callable[[int], None] | None = None) -> CheckReport:
    """Handshake, up to `examples` training rows with traces, and one reflective dataset; spends no budget.

    Of several servers the first that answers is tried; those that do not are warnings. `trying` is told how many rows
    are tried, before they are. Servers that score are asked what they are, and nothing more.

    Raises:
        Refused, SettingsError: the settings cannot be used.
    """
    silent: list[Step] = []
    named = endpoints(config)
    for number, at in enumerate(named):
        attempt = _Attempt(config, at.url, named[number + 1 :], examples, trying)
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
                with contextlib.suppress(_Stop):
                    await attempt.go()
        if attempt.reached or attempt.fatal:
            attempt.steps = [step.model_copy(update={"verdict": "warning"}) for step in silent] + attempt.steps
            break
        silent += attempt.steps
        attempt.steps = silent
    return attempt.report()


class _Attempt:
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
        self.evolve: Evolve = "prompts"
        self.steps: list[Step] = []
        self.examples: list[CheckedExample] = []
        self.timing: Timing | None = None
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

    def note(self, name: Any, verdict: Verdict, message: str, further: str | None = None) -> None:
        self.steps.append(Step(name=name, verdict=verdict, message=message, details=further))

    def failed(self, name: Any, error: Exception) -> None:
        """Note what ended a step."""
        breach = "the server breaks the contract: " if isinstance(error, BadResponse) else ""
        self.note(name, "failed", breach + summary(error), details(error) if isinstance(error, RpcError) else None)

    async def go(self) -> None:
        discovery = await self._handshake()
        self._code(discovery)
        await self._meet_scorers()
        await self._meet_others(discovery)
        rows = await self._rows(discovery)
        if self.trying is not None:
            self.trying(len(rows))
        results = await self._evaluate(discovery, rows)
        self._judge(discovery, results)
        await self._reflect(discovery, rows, results)
        self._proposals(discovery)

    async def _handshake(self) -> DiscoverResult:
        try:
            self.discovery = await self.client.discover()
        except (ClientError, RpcError) as error:
            self.reached = not isinstance(error, ConnectionLost)
            self.failed("handshake", error)
            raise _Stop from error
        program = self.discovery.program
        offered = ", ".join(self.discovery.capabilities) or "the core alone"
        self.note("handshake", "ok", f"components {', '.join(program.seed_candidate)}; the server offers {offered}")
        return self.discovery

    def _code(self, discovery: DiscoverResult) -> None:
        """What would be changed, code or prompts; nothing is said of it where there are prompts alone."""
        offered = "commits" in discovery.capabilities, "mutations" in discovery.capabilities
        seed = code_of(discovery.program.seed_candidate) or "no commit"
        if all(offered) and self.config.reflection_lm is None and self.config.evolve != "prompts":
            self.evolve = self.config.evolve or "both"
            self.note("code", "warning", f"can evolve, from {seed}, once a --reflection-lm asks for changes")
            return
        try:
            self.evolve = evolve_of(self.config, discovery)
        except SettingsError as error:
            self.note("code", "failed", str(error))
            raise _Stop from error
        if self.evolve != "prompts":
            self.note("code", "ok", f"evolves, from {seed} (no agent is called here)")
        elif all(offered):
            self.note("code", "ok", f"could evolve, from {seed}; --evolve prompts leaves it as it is")
        elif any(offered):
            self.note("code", "ok", f"candidates name the commit that runs, now {seed}; nobody there changes code")

    async def _meet_scorers(self) -> None:
        """Nothing is paid for where nobody could score it."""
        named = scorers(self.config)
        if not named:
            return
        answers = await asyncio.gather(*map(_met, named))
        silent = [found for found in answers if not isinstance(found, DiscoverResult)]
        if len(silent) == len(answers):
            self.reached, self.fatal = False, True
            self.note("scores", "failed", f"nobody is there to score: {'; '.join(map(summary, silent))}")
            raise _Stop
        if not any(isinstance(found, DiscoverResult) and "scoring" in found.capabilities for found in answers):
            urls = ", ".join(self.config.score_with)
            self.note("scores", "failed", f"{urls}, given to score, does not offer `score` (capability `scoring`)")
            raise _Stop
        for error in silent:
            self.note("scores", "warning", f"one of the servers that score: {summary(error)}")

    async def _meet_others(self, discovery: DiscoverResult) -> None:
        """How many examples all servers together run at once."""
        self.at_once = discovery.limits.max_concurrency
        for found in await asyncio.gather(*(_met(at, resends=0) for at in self.others)):
            if isinstance(found, DiscoverResult):
                self.at_once += found.limits.max_concurrency
            else:
                self.note("handshake", "warning", summary(found))

    async def _rows(self, discovery: DiscoverResult) -> list[Numbered]:
        """Up to `wanted` training rows, spread over all of them."""
        held = {split: info.size for split, info in discovery.datasets.items()}
        try:
            rows = await splits.training_rows(self.config, held, functools.partial(held_rows, self.client))
        except (SettingsError, RowsError) as error:
            self.note("rows", "failed", str(error))
            raise _Stop from error
        except (ClientError, RpcError) as error:
            self.failed("rows", error)
            raise _Stop from error
        count = min(self.wanted, discovery.limits.max_batch_size, len(rows))
        self.note("rows", "ok", f"{count} of {len(rows)} training rows of {splits.train_name(self.config, held)}")
        return [(at, rows[at]) for at in ((number * len(rows)) // count for number in range(count))]

    async def _evaluate(self, discovery: DiscoverResult, rows: list[Numbered]) -> list[dict[str, Any]]:
        """One result per row; a call that was lost stands as an `infra_error` of its own."""
        group = uuid.uuid4().hex if self.client.offers("refs") else None
        results: list[dict[str, Any]] = [{}] * len(rows)
        took: list[float] = []

        async def evaluate(start: int, batch: list[Numbered], job: Job) -> None:
            job.begun = True
            began = time.monotonic()
            try:
                answer = await self.client.evaluate(
                    discovery.program.seed_candidate,
                    [row.wire for _, row in batch],
                    capture_traces=True,
                    call_id=self._call_id(),
                    group=group,
                    timeout_s=evaluation_s(discovery.limits, len(batch)),
                )
            except (ConnectionLost, RpcError) as error:
                if isinstance(error, RpcError) and not error.retryable:
                    raise
                lost = {"type": type(error).__name__, "message": str(error)}
                results[start : start + len(batch)] = [
                    {"status": "infra_error", "score": None, "seconds": 0.0, "error": lost}
                ] * len(batch)
                return
            took.append((time.monotonic() - began) / len(batch))
            results[start : start + len(batch)] = answer["results"]

        began = time.monotonic()
        width = len(rows) if discovery.limits.whole_batches else 1
        jobs = [Job(functools.partial(evaluate, at, rows[at : at + width])) for at in range(0, len(rows), width)]
        try:
            await run_all(jobs, discovery.limits.max_concurrency)
        except (BadResponse, RpcError) as error:
            self.failed("evaluate", error)
            raise _Stop from error
        self.examples = [_checked(at, row, result) for (at, row), result in zip(rows, results, strict=True)]
        if took:
            self._time(took, time.monotonic() - began)
        return results

    def _call_id(self) -> str | None:
        return uuid.uuid4().hex if self.client.offers("idempotency") else None

    def _time(self, took: list[float], all_s: float) -> None:
        costs = [example.cost_usd for example in self.examples if example.cost_usd is not None]
        budget = self.config.max_metric_calls if self.config.ends else ASSUMED_BUDGET
        each_s = _mean(took)
        at_once = self.at_once
        minibatch = min(self.config.reflection_minibatch_size or 3, at_once)
        each_usd = _mean(costs) if costs else None
        self.timing = Timing(
            example_s=each_s,
            slowest_s=max(took),
            all_s=all_s,
            at_once=at_once,
            budget=budget,
            run_s=(budget * each_s / at_once, budget * each_s / minibatch) if budget is not None else None,
            example_usd=each_usd,
            run_usd=budget * each_usd if each_usd is not None and budget is not None else None,
        )

    def _judge(self, discovery: DiscoverResult, results: list[dict[str, Any]]) -> None:
        failed = [example for example in self.examples if example.status in SYSTEM_ERRORS]
        share = len(failed) / len(self.examples)
        kinds = ", ".join(
            f"{count} {kind}" for kind in SYSTEM_ERRORS if (count := sum(example.status == kind for example in failed))
        )
        if (
            share > TOLERATED
            and all(example.status == "program_error" for example in failed)
            and self.evolve != "prompts"
        ):
            message = f"the program fails on {len(failed)} of {len(self.examples)}; changes of code may mend that"
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
            self._all_zero(discovery)

    def _unscored(self) -> None:
        if self.config.score_with:
            self.note("scores", "ok", f"by {', '.join(self.config.score_with)} (not called here)")
            return
        self.note(
            "scores",
            "failed",
            "the program has no score function: name a server that scores its results with --score-with URL",
        )

    def _all_zero(self, discovery: DiscoverResult) -> None:
        """All scores 0: a fault, unless the whole seed is still unwritten: then there is nothing yet to score."""
        texts = texts_of(discovery.program.seed_candidate)
        if texts and not any(text.strip() for text in texts.values()):
            names = ", ".join(texts)
            message = f"the seed's texts are empty ({names}), so every score is 0: nothing to worry about"
            self.note("scores", "ok", message)
            return
        if self.evolve != "prompts":
            message = "every score is 0: a change of code may mend that, if the score function is right"
            self.note("scores", "warning", message)
            return
        self.note(
            "scores",
            "failed",
            "every score is 0: GEPA could not tell a better candidate from a worse one. Is the score function right, "
            "and do the outputs look as they should?",
        )

    async def _reflect(self, discovery: DiscoverResult, rows: list[Numbered], results: list[dict[str, Any]]) -> None:
        """A reflective dataset for the first component, from everything that got a verdict."""
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
        self.note("reflective dataset", "ok", f"{len(records)} records for {component}, {size:,} characters")

    def _proposals(self, discovery: DiscoverResult) -> None:
        if self.config.reflection_lm is not None:
            self.note("proposals", "ok", f"by {self.config.reflection_lm} (not called here)")
        elif "proposals" in discovery.capabilities:
            self.note("proposals", "ok", "by the program itself (not called here)")
        else:
            self.note("proposals", "warning", "nobody proposes new texts yet: a run needs --reflection-lm")


async def _met(at: Address, resends: int = RESENDS) -> DiscoverResult | Exception:
    """What a server says of itself, or why it cannot be asked."""
    try:
        async with RpcClient(
            at.url, token_file=at.token_file, proxy_token_file=at.proxy_token_file, allow_insecure=at.allow_insecure
        ) as client:
            return await client.discover(resends=resends)
    except (ClientError, RpcError) as error:
        return error


def _mean(values: list[float]) -> float:
    """Without their sum, which may be infinite where every value is finite: they are a server's."""
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
