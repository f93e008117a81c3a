"""Try a server on a few training rows before a run is paid for, and estimate the run."""

import asyncio
import contextlib
import functools
import json
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolverpc_common.display_text import counted
from evolverpc_common.model_prices import PriceTable, priced
from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.check_report import (
    IGNORABLE,
    SYSTEM_ERRORS,
    TOLERATED,
    CheckedExample,
    CheckReport,
    CheckStep,
    Result,
    StepName,
    StepVerdict,
    are_blank,
    are_zero,
    examples_verdict,
    hold_scores_alone,
    may_be_tolerated,
    mean,
    named_rows,
    naming,
    output_fault,
    perfect_for,
    scores_verdict,
    share_failed,
)
from gepa_client.check.compared_servers import compare_servers
from gepa_client.check.preflight import call_reflection_model, discovered
from gepa_client.check.run_forecast import PROPOSALS, NoiseReport, RunEstimate, proposal_calls
from gepa_client.errors import NO_SCORE, BadResponse, ClientError, ConnectionLost, Refused, RowsError, details, summary
from gepa_client.evolution.candidate_names import code_label, component_texts
from gepa_client.fleet.example_retries import HostEvidence, evaluated_alone
from gepa_client.fleet.handshake import (
    OWN_RECORDS,
    changed_since_start,
    differences,
    lacking,
)
from gepa_client.gepa.reflective_records import customary_records
from gepa_client.gepa.rows import (
    COMPARED,
    EXACT_VALUES,
    AnyRow,
    default_sample,
    list_server_rows,
    noise_warning,
    rows_searched,
    rows_to_compare,
)
from gepa_client.journal.history import content_key
from gepa_client.journal.requests import digest_of
from gepa_client.run import splits
from gepa_client.run.resolved_settings import endpoints, evolve_of, is_deterministic, metric_call_budget, scorers
from gepa_client.settings.run_config import NO_PROPOSER, RunConfig, score_range_of
from gepa_client.settings.run_settings import GEPA_MINIBATCH, SUGGESTED_METRIC_CALLS
from gepa_client.transport.address import Address, rpc_url
from gepa_client.transport.calls import CALL_TIMEOUT_S
from gepa_client.transport.event_loop import GroupTask, in_daemon_thread, run_group
from gepa_client.transport.responses import validated
from gepa_client.transport.rpc_client import RpcClient
from protocol import DiscoverResult, MakeReflectiveDatasetResult
from protocol.code import CODE_COMPONENTS, GIT_BRANCH
from protocol.errors import RpcError

STARTS_S = 1.0
"""Seconds per call below which the start of a program may be most of what its first calls take."""

MORE_ROWS = 2
"""How many times the rows tried so far are added while every score is 0."""

Numbered = tuple[int, AnyRow]
"""A training row with its index among all of them."""

FIRST_WAIT_S = 10.0
"""Seconds after which rows that are still tried are reported; then each time after twice as long."""


Trying = Callable[[str], None]
"""Gets in words which rows are tried, and for which of them a check waits long."""


async def check_server(
    config: RunConfig,
    examples: int,
    trying: Trying = lambda _words: None,
    *,
    repeats: int = 1,
    calls_model: bool = True,
    alone: bool = False,
) -> CheckReport:
    """Handshake, up to `examples` training rows with traces, and one reflective dataset; spends no budget.

    `calls_model`: the reflection model is called once, from this process. `alone`: no run follows, which would warn
    of rows in two splits itself, and compare its servers.

    If no step fails, the rows are evaluated until each was `repeats` times, which shows how noisy the scores are, if
    those limits allow it.

    While every score is 0, more rows are tried (once if all outputs are equal or empty, else up to all rows); so are
    they while more examples failed than are tolerated, if the share of all rows may be less. They are never more than
    the run's own limits on metric calls and cost allow. Of several servers the first that answers is tried, and `alone`
    the others are compared with it on a few rows, and one that cannot be compared fails. Servers that score are asked
    what they are, and nothing more.
    A step that fails ends only the steps that need it; after a fault in the settings no row is paid for.

    Raises:
        Refused, SettingsError: the settings cannot be used.
    """
    unreachable: dict[str, CheckStep] = {}
    lost = False
    servers = endpoints(config)
    for number, server in enumerate(servers):
        rpc_url(server.url, allow_insecure=server.allow_insecure)  # an invalid address is no unreachable server
        async with contextlib.AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(RpcClient(server, example_timeout_s=config.example_timeout_s))
                discovery = await client.discover()
            except (Refused, ConnectionLost) as error:  # its token, or no server there: another one may be usable
                unreachable[server.url] = _failure(config, "handshake", error)
                lost = lost or isinstance(error, ConnectionLost)
                continue
            except (ClientError, RpcError) as error:
                return CheckReport(
                    url=server.url, steps=[*_as_warnings(unreachable.values()), _failure(config, "handshake", error)]
                )
            others = servers[number + 1 :]
            check = _ServerCheck(
                server.url, config, client, discovery, others, examples, repeats, trying, calls_model, alone
            )
            check.report.steps += _as_warnings(unreachable.values())
            await check.run()
            if alone:
                for url, step in unreachable.items():
                    check.note("servers", "failed", f"not compared: {naming(url, step.message)}")
            return check.report
    return CheckReport(url=servers[-1].url, steps=list(unreachable.values()), reached=False, lost=lost)


@dataclass
class _ServerCheck:
    url: str
    config: RunConfig
    client: RpcClient
    discovery: DiscoverResult
    others: Sequence[Address]
    wanted: int
    repeats: int
    trying: Trying
    calls_model: bool
    alone: bool
    seconds: list[float] = field(default_factory=list)
    at_once: int = 0
    budget: int | None = None
    validation_rows: int = 0
    training_only: bool = False
    test_rows: int | None = None
    evidence: HostEvidence = field(default_factory=HostEvidence)
    _scorers_exact: bool = True

    def __post_init__(self) -> None:
        self.texts = component_texts(self.discovery.program.seed_candidate)
        server = self.discovery.server
        self.report = CheckReport(
            url=self.url,
            program=self.discovery.program.name,
            server=f"{server.name} {server.version}",
            language=server.language,
        )

    def note(self, name: StepName, verdict: StepVerdict, message: str) -> None:
        self.report.steps.append(_step(self.config, name, verdict, message))

    def failed(self, name: StepName, error: Exception) -> None:
        self.report.lost = self.report.lost or isinstance(error, ConnectionLost)
        self.report.steps.append(_failure(self.config, name, error))

    @property
    def evolves(self) -> bool:
        """Whether a change of code may fix the program."""
        return self.report.evolve != "prompts"

    async def run(self) -> None:
        offered = ", ".join(self.discovery.capabilities) or "the core alone"
        components = ", ".join(self.discovery.program.seed_candidate)
        self.note("handshake", "ok", f"components {components}; the server offers {offered}")
        if (warning := changed_since_start(self.discovery)) is not None:
            self.note("handshake", "warning", warning)
        self._example_timeout(self.client.url, self.discovery)
        self._code()
        await self._discover_scorers()
        await self._discover_others()
        rows = await self._rows()
        if not self.report.passed:
            self.note("evaluate", "skipped", "no row is tried until what failed is fixed")
            rows = []
        model = self.config.reflection_lm
        calling = None
        if rows and model is not None and self.calls_model:  # beside the rows; a check that is stopped does not wait
            kwargs = self.config.reflection_lm_kwargs or {}
            prices = PriceTable(self.config.model_prices or {})
            calling = in_daemon_thread(functools.partial(call_reflection_model, model, kwargs, prices))
        if rows:
            await self._try(rows)
        if rows and self.alone and self.others:
            chosen = rows_to_compare([row for _, row in rows], max(COMPARED, self.wanted))
            self.trying(f"comparing the servers on {counted(len(chosen), 'row')} …")
            steps, self.report.compared = await compare_servers(
                self.config, self.client, self.discovery, self.others, chosen
            )
            self.report.steps += steps
        if calling is not None:
            self.note("proposals", *await calling)
        elif model is not None:
            self.note("proposals", "ok", f"by {model} (not called here)")
        elif "proposals" in self.discovery.capabilities:
            self.note("proposals", "ok", "by the program itself (not called here)")
        else:
            self.note("proposals", "warning", NO_PROPOSER)

    def _code(self) -> None:
        """Note what would be changed, code or prompts; nothing for a program without code."""
        offered = {"commits", "mutations"} & set(self.discovery.capabilities)
        seed = code_label(self.discovery.program.seed_candidate) or "no commit"
        if len(offered) == 2 and self.config.reflection_lm is None and self.config.evolve != "prompts":
            self.report.evolve = self.config.evolve or "both"
            self.note("code", "warning", f"can evolve, from {seed}, once a `reflection_lm` asks for changes")
            return
        try:
            self.report.evolve = evolve_of(self.config, self.discovery)
        except SettingsError as error:
            self.note("code", "failed", str(error))
            return
        if self.evolves:
            agent = self.discovery.server.agent or "the server's coding agent"
            self.note("code", "ok", f"evolves, from {seed}, changed by {agent} (not called here)")
        elif len(offered) == 2:
            self.note("code", "ok", f"could evolve, from {seed}; `evolve` set to prompts leaves it as it is")
        elif offered:
            message = f"candidates name the commit that runs, now {seed}; the server does not change code"
            self.note("code", "ok", message)

    async def _discover_scorers(self) -> None:
        """Check that the scoring servers can score."""
        answers = await discovered(scorers(self.config), resend=True)
        unreachable = [found for found in answers if isinstance(found, Exception)]
        if unreachable and len(unreachable) == len(answers):
            self.report.reached = False
            self.note("scores", "failed", f"no scoring server is reachable: {'; '.join(map(summary, unreachable))}")
            return
        able = [found for found in answers if isinstance(found, DiscoverResult) and "scoring" in found.capabilities]
        if answers and not able:
            urls = ", ".join(self.config.score_with)
            self.note("scores", "failed", f"{urls}, given to score, does not offer `score` (capability `scoring`)")
        self._scorers_exact = all(EXACT_VALUES in found.capabilities for found in able)
        for url, found in zip(self.config.score_with, answers, strict=True):
            if isinstance(found, DiscoverResult):
                self._example_timeout(url, found)
                if able and "scoring" not in found.capabilities:
                    self.note(
                        "scores", "warning", f"{url}, given to score, does not offer `score`: no row is scored there"
                    )
        for error in unreachable:
            self.note("scores", "warning", f"one of the servers that score: {summary(error)}")

    async def _discover_others(self) -> None:
        """Count the examples that all servers together run at once."""
        self.at_once = self.discovery.limits.max_concurrency
        answers = await discovered(self.others, resend=False)
        for server, found in zip(self.others, answers, strict=True):
            if isinstance(found, Exception):
                self.note("handshake", "warning", naming(server.url, summary(found)))
                continue
            self.at_once += found.limits.max_concurrency
            self._example_timeout(server.url, found)
            mixed = self.config.allow_mixed_programs
            if different := differences(self.discovery, found, (), allow_mixed_programs=mixed):
                self.note("handshake", "failed", f"{server.url} does not serve the same: {'; '.join(different)}")
        self.at_once = min(self.at_once, self.config.concurrency or self.at_once)

    def _example_timeout(self, url: str, discovery: DiscoverResult) -> None:
        """Note if the server cannot be given the limit on the time of an example, or has a lower one of its own."""
        wanted_s, own_s = self.config.example_timeout_s, discovery.limits.example_timeout_s
        if wanted_s is None:
            return
        for why in lacking(discovery, wanted_s):
            self.note("handshake", "failed", f"{url}: {why}: leave it out, and set the limit where the server starts")
        if own_s is not None and own_s < wanted_s:
            self.note(
                "handshake", "warning", f"{url}: its own limit of {own_s:g} s per example holds, not {wanted_s:g} s"
            )

    async def _rows(self) -> list[Numbered]:
        """Return the training rows without those kept for the test; none if the rows of any split cannot be read."""
        held = {split: info.size for split, info in self.discovery.datasets.items()}
        try:
            fetch = functools.partial(list_server_rows, self.client)
            exact = EXACT_VALUES in self.discovery.capabilities and self._scorers_exact
            found = await splits.read(self.config, held, fetch, exact=exact)
        except (SettingsError, RowsError) as error:
            self.note("rows", "failed", str(error))
            return []
        except (ClientError, RpcError) as error:
            self.failed("rows", error)
            return []
        rows, train, val, test = found.given, found.train, found.val, found.test
        self.budget = metric_call_budget(
            self.config, texts=len(self.texts), train=len(train), val=len(val) if val is not None else None
        )
        self.validation_rows, self.training_only = len(train if val is None else val), val is None
        self.test_rows = None if test is None else len({content_key(row.wire, row.data) for row in test})
        purposes = {"validation": found.taken.get("val"), "the test": found.taken.get("test")}
        kept = "".join(f", {len(taken)} of them kept for {purpose}" for purpose, taken in purposes.items() if taken)
        source = splits.sources(self.config, held)["train"]
        self.note("rows", "ok", f"{len(rows)} training rows of {splits.described(source)}{kept}")
        for warning in splits.overlaps(train, val, test) if self.alone else ():
            self.note("rows", "warning", warning)
        sealed = {id(row) for row in found.taken.get("test", ())}
        return [(at, row) for at, row in enumerate(rows) if id(row) not in sealed]

    async def _try(self, rows: list[Numbered]) -> None:
        """Run the seed on a few rows, on more if those cannot be judged, and make a reflective dataset."""
        untried = list(range(len(rows)))
        first = chosen = _spread_over(untried, min(self.wanted, self.discovery.limits.max_batch_size))
        components = list(self.discovery.program.seed_candidate)
        results: list[Result] = []
        try:
            while chosen:
                tried = [rows[at] for at in chosen]
                found = await self._evaluate(tried, traced=not results, why=self._why_more(results))
                self.report.examples += [
                    CheckedExample.of(at, row, each, components) for (at, row), each in zip(tried, found, strict=True)
                ]
                results += found
                untried = sorted(set(untried) - set(chosen))
                chosen = self._more(results, untried)
        except (BadResponse, RpcError) as error:
            self.failed("evaluate", error)
            return
        if self.seconds and share_failed(self.report.examples) < 1:
            self._time(warm=False)
        self.note("evaluate", *examples_verdict(self.report.examples, evolves=self.evolves))
        if not self.config.score_with and any(result["status"] == "rollout" for result in results):
            self.note("score function", "failed", NO_SCORE)
            return
        perfect = self.config.perfect_score if self.config.skip_perfect_score else None
        judged = scores_verdict(results, self.texts, self.config.score_with, evolves=self.evolves, perfect=perfect)
        self.note("scores", *judged)
        scores = [result["score"] for result in results if result["score"] is not None]
        if perfect is not None and max(scores, default=perfect) > perfect:
            self.report.perfect_score = perfect_for(scores)
        tried_first = [rows[at] for at in first]
        await self._reflect([row for _, row in tried_first], results[: len(first)])
        if self.report.passed:
            await self._measure_noise(tried_first, results)

    async def _measure_noise(self, rows: list[Numbered], results: list[Result]) -> None:
        """Evaluate the first rows again until each was as often as wanted; report what their scores show of a run."""
        scored = [(row, found) for row, found in zip(rows, results, strict=False) if found["score"] is not None]
        if len(scored) < 2:
            self.note("noise", "skipped", f"{counted(len(scored), 'row')} with a score: nothing to compare")
            return
        rows, tries, spent = [row for row, _ in scored], [[found for _, found in scored]], list(results)
        try:
            while len(tries) < self.repeats and self._can_try(len(rows), spent):
                first, self.seconds = self.report.timing, []
                tries.append(await self._evaluate(rows, traced=False, again=True))
                spent += tries[-1]
                if self.seconds and (first is None or first.warm or first.example_s < STARTS_S):
                    self._time(warm=True)
                elif self.seconds and first is not None:  # longer ones are work, which may be cached now
                    self.report.timing = first.model_copy(update={"again_s": mean(self.seconds)})
        except (BadResponse, RpcError) as error:
            self.failed("noise", error)
            return
        self._judge_again(rows, tries[1:])
        every = list(zip(rows, zip(*tries, strict=True), strict=True))
        rows = [row for row, found in every if all(each["score"] is not None for each in found)]
        by_row = [found for _, found in every if all(each["score"] is not None for each in found)]
        if len(by_row) < 2:
            self.note("noise", "skipped", f"{counted(len(by_row), 'row')} with a score each time: nothing to compare")
            return
        scores_of = [[float(each["score"]) for each in found] for found in by_row]
        self.report.noise = NoiseReport.of(
            scores_of,
            identical=all(len({digest_of(each.get("output")) for each in found}) == 1 for found in by_row),
            validation_rows=self.validation_rows,
            test_rows=self.test_rows,
            training_only=self.training_only,
            score_range=score_range_of(self.config.recorded()),
        )
        warnings = [noise_warning(row, scores) for (_, row), scores in zip(rows, scores_of, strict=True)]
        stated = is_deterministic(self.config, self.discovery)
        about = self.report.noise.about_noise(stated=stated)
        if stated and (found := next(filter(None, warnings), None)) is not None:
            self.note("noise", "warning", f"{found}; {about}")
        else:
            self.note("noise", "ok", about)

    def _judge_again(self, rows: list[Numbered], again: Sequence[list[Result]]) -> None:
        """Judge the examples once more if some failed when the rows were evaluated again."""
        components = list(self.discovery.program.seed_candidate)
        tried = [
            CheckedExample.of(at, row, each, components)
            for results in again
            for (at, row), each in zip(rows, results, strict=True)
        ]
        if any(example.status in SYSTEM_ERRORS for example in tried):
            judged = examples_verdict([*self.report.examples, *tried], evolves=self.evolves)
            at = next(at for at, step in enumerate(self.report.steps) if step.name == "evaluate")
            self.report.steps[at] = _step(self.config, "evaluate", *judged)

    def _can_try(self, count: int, results: Sequence[Result]) -> bool:
        """Return whether the run's own limits on metric calls and cost allow `count` more rows after these results."""
        return not self._is_spent(results) and (self.budget is None or len(results) + count <= self.budget)

    def _is_spent(self, results: Sequence[Result]) -> bool:
        """Return whether the results cost as much as the run may."""
        spent = sum((result.get("usage") or {}).get("cost_usd") or 0.0 for result in results)
        return self.config.max_cost_usd is not None and spent >= self.config.max_cost_usd

    def _more(self, results: list[Result], untried: list[int]) -> list[int]:
        """Return the rows to try next: none unless those tried cannot be judged, and more rows may change that.

        That is so if every score is 0, or if more examples failed than are tolerated but the share of all rows may be
        less.
        """
        if self.evolves or self._is_spent(results):
            return []
        if share_failed(self.report.examples) > TOLERATED:
            failed = sum(example.status in SYSTEM_ERRORS for example in self.report.examples)
            if not may_be_tolerated(failed, len(results), len(results) + len(untried)):
                return []
        elif not are_zero(results) or are_blank(self.texts) or (len(results) > self.wanted and output_fault(results)):
            return []
        count = MORE_ROWS * len(results)
        if self.budget is not None:
            count = min(count, self.budget - len(results))
        if self.discovery.limits.whole_batches:
            count = min(count, self.discovery.limits.max_batch_size)
        return _spread_over(untried, max(count, 0))

    def _why_more(self, results: Sequence[Result]) -> str:
        """Return why more rows than the first are tried; "" for the first."""
        if not results:
            return ""
        failed = sum(example.status in SYSTEM_ERRORS for example in self.report.examples)
        if failed > TOLERATED * len(results):
            return f"{failed} of {len(results)} failed, and fewer may of more"
        return f"all {len(results)} so far scored 0"

    async def _evaluate(
        self, rows: list[Numbered], *, traced: bool, again: bool = False, why: str = ""
    ) -> list[Result]:
        """Return one result per row; a lost call counts as an `infra_error`. `why`: these are tried besides others.

        Raises:
            BadResponse, RpcError: the server breaks the contract, or cannot run the program at all.
        """
        inline = self.client.offers("steps") or not self.client.offers("refs")  # to see at which step examples fail
        group = uuid.uuid4().hex if traced and not inline else None
        prices = PriceTable(self.config.model_prices or {})
        results: list[Result] = [{}] * len(rows)
        begun: set[int] = set()

        async def report() -> None:
            more = f"{len(rows)} more rows: {why}" if why else counted(len(rows), "row")
            self.trying(f"trying {more}{' again, to see how noisy their scores are' if again else ''} …")
            await asyncio.sleep(seconds := FIRST_WAIT_S)
            while True:
                pending = [at for (at, _), result in zip(rows, results, strict=True) if not result]
                ended = f"{len(rows) - len(pending)} of {counted(len(rows), 'row')} have ended"
                self.trying(f"waiting {seconds:g} s for {named_rows([at for at in pending if at in begun])}; {ended}")
                await asyncio.sleep(seconds)
                seconds *= 2

        async def evaluate(start: int, batch: list[Numbered], job: GroupTask) -> None:
            job.begun = True
            begun.update(at for at, _ in batch)
            seed, wire = self.discovery.program.seed_candidate, [row.wire for _, row in batch]
            try:
                found, seconds = await evaluated_alone(
                    self.client, self.evidence, seed, wire, traced=traced, group=group
                )
            except (ConnectionLost, RpcError) as error:
                if isinstance(error, RpcError) and not error.retryable:
                    raise
                self.report.lost = self.report.lost or isinstance(error, ConnectionLost)
                lost = {"type": type(error).__name__, "message": str(error)}
                failed = {"status": "infra_error", "score": None, "seconds": 0.0, "error": lost}
                results[start : start + len(batch)] = [failed] * len(batch)
                return
            self.seconds.append(seconds / len(batch))
            for at, result in enumerate(found, start):
                usage = result.get("usage")
                results[at] = {**result, "usage": priced(usage, prices)} if usage else result

        limits = self.discovery.limits
        most = self.config.concurrency or limits.max_concurrency
        width = min(len(rows), self.config.concurrency or len(rows)) if limits.whole_batches else 1
        jobs = [GroupTask(functools.partial(evaluate, at, rows[at : at + width])) for at in range(0, len(rows), width)]
        reporting = asyncio.create_task(report())
        try:
            await run_group(jobs, min(most // width or 1, limits.max_concurrency))
        finally:
            reporting.cancel()
        return results

    def _time(self, *, warm: bool) -> None:
        """Estimate a run by the calls that were measured last. `warm`: as in `RunEstimate`."""
        costs = [example.cost_usd for example in self.report.examples if example.cost_usd is not None]
        budget = self.budget if self.config.ends else SUGGESTED_METRIC_CALLS
        each_s = mean(self.seconds)
        each_usd = mean(costs) if costs else None
        size = self.config.reflection_minibatch_size or GEPA_MINIBATCH
        minibatch = min(size, self.at_once)
        calls = proposal_calls(self._sampled_rows() if self.config.sample else self.validation_rows, size)
        self.report.timing = RunEstimate(
            example_s=each_s,
            slowest_s=max(self.seconds),
            warm=warm,
            at_once=self.at_once,
            budget=budget,
            run_s=(budget * each_s / self.at_once, budget * each_s / minibatch) if budget is not None else None,
            example_usd=each_usd,
            run_usd=budget * each_usd if each_usd is not None and budget is not None else None,
            proposals=PROPOSALS,
            proposals_calls=calls,
            proposals_usd=(calls[0] * each_usd, calls[1] * each_usd) if each_usd is not None else None,
        )

    def _sampled_rows(self) -> int:
        """Return on how many validation rows a search on a sample scores candidates."""
        if self.training_only or self.discovery.limits.whole_batches:
            return self.validation_rows
        given = self.config.race_rows
        return rows_searched(self.validation_rows, default_sample(self.at_once) if given is None else given)

    async def _reflect(self, rows: list[AnyRow], results: list[Result]) -> None:
        """Make a reflective dataset for the first component, from all examples with a result."""
        seed = self.discovery.program.seed_candidate
        texts = [name for name in seed if name not in CODE_COMPONENTS]
        component = texts[0] if texts and self.report.evolve != "code" else GIT_BRANCH
        usable = [
            (row, result)
            for row, result in zip(rows, results, strict=True)
            if result["status"] in ("ok", "program_error", "timeout")
        ]
        if not usable:
            self.note("reflective dataset", "skipped", "no example has a verdict")
            return
        try:
            dataset, images = await self._records(usable, component)
        except (ClientError, RpcError) as error:
            self.failed("reflective dataset", error)
            return
        records = dataset.get(component)
        if not records:
            message = f"no records for {component}: reflection would have nothing to read"
            self.note("reflective dataset", "failed", message)
            return
        about = f"{len(records)} records for {component}, {len(json.dumps(records, ensure_ascii=False)):,} characters"
        if images:
            about += f", {len(images)} different images"
        model = self.config.reflection_lm
        shown = self.config.reflection_images
        listed = PriceTable({}).named(model) if images and model is not None and shown is None else None
        if listed is not None and not listed.takes_images:
            message = f"{about}, but {model} takes no images and reads their type and size"
            self.note("reflective dataset", "warning", f"{message}: name a model that does as `reflection_lm`")
        elif images and model is not None and shown is None and listed is None:
            self.note("reflective dataset", "warning", f"{about}; it is not known whether {model} takes images")
        elif hold_scores_alone([result for _, result in usable], records):
            message = f"{about}, whose feedback is the score alone: have `score` return feedback beside the number"
            self.note("reflective dataset", "warning", f"{message}, such as what was expected and why it is wrong")
        else:
            self.note("reflective dataset", "ok", about)

    async def _records(
        self, examples: list[tuple[AnyRow, Result]], component: str
    ) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], Mapping[str, Any]]:
        """Return the records that reflection on these examples would read, by component, and the images in them."""
        seed = self.discovery.program.seed_candidate
        if OWN_RECORDS not in self.discovery.capabilities:
            results = [(row.data, result) for row, result in examples]
            made = customary_records(results, [component], seed, seed=self.config.seed)
            return made["dataset"], made.get("images", {})
        batch = {"batch": [row.wire for row, _ in examples], "results": [result for _, result in examples]}
        params = {"candidate": seed, "eval_batch": batch, "components_to_update": [component]}
        answer = await self.client.call(
            "make_reflective_dataset", params, call_id=self.client.new_call_id(), timeout_s=CALL_TIMEOUT_S
        )
        records = validated(MakeReflectiveDatasetResult, answer)
        return records.dataset, records.images or {}


def _spread_over(untried: Sequence[int], count: int) -> list[int]:
    """Return `count` of the indices, one of each part of equal size; all if there are no more.

    The place within a part is random, as rows may repeat labels in turn, and always the same.
    """
    count, total, place = min(count, len(untried)), len(untried), random.Random(0)  # noqa: S311 - no secret
    return [untried[place.randrange(at * total // count, (at + 1) * total // count)] for at in range(count)]


def _step(
    config: RunConfig, name: StepName, verdict: StepVerdict, message: str, further: str | None = None
) -> CheckStep:
    if verdict == "failed" and config.check == "warn" and name in IGNORABLE:
        verdict, message = "warning", f"{message} (only a warning, because `check` is warn)"
    return CheckStep(name=name, verdict=verdict, message=message, details=further)


def _failure(config: RunConfig, name: StepName, error: Exception) -> CheckStep:
    """Return the step that the error ended."""
    breach = "the server breaks the contract: " if isinstance(error, BadResponse) else ""
    further = details(error) if isinstance(error, RpcError) else None
    return _step(config, name, "failed", breach + summary(error), further)


def _as_warnings(steps: Iterable[CheckStep]) -> list[CheckStep]:
    return [step.model_copy(update={"verdict": "warning"}) for step in steps]
