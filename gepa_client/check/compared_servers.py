"""The comparison of several servers by what they give for the seed on a few rows, as when they join a run."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence

from gepa_client.check.check_report import CheckStep, ComparedResult, StepVerdict, naming
from gepa_client.errors import ClientError, summary
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.fleet.fleet import UNKNOWN_CODE
from gepa_client.fleet.handshake import has_unknown_code, same_code
from gepa_client.fleet.seed_comparison import Comparison, Results, SeedComparison
from gepa_client.gepa.rows import AnyRow, evaluation_call
from gepa_client.journal.entries import COMPARE
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key
from gepa_client.run.resolved_settings import is_deterministic
from gepa_client.settings.run_config import RunConfig
from gepa_client.transport.address import Address
from gepa_client.transport.calls import Call, Reply
from gepa_client.transport.rpc_client import RpcClient
from protocol import DiscoverResult
from protocol.errors import RpcError


async def compare_servers(
    config: RunConfig,
    client: RpcClient,
    leader: DiscoverResult,
    others: Sequence[Address],
    rows: Sequence[AnyRow],
) -> tuple[list[CheckStep], list[ComparedResult]]:
    """Return a step for each of the other servers, and the results by which they were compared.

    `client`: of the first server, whose code is not compared again. `rows`: those to compare by. A server that is not
    compared fails.
    """
    first = Endpoint(client)
    first.admit(leader)
    limits, seed = leader.limits, leader.program.seed_candidate
    parts = [rows[: limits.max_batch_size]] if limits.whole_batches else [[row] for row in rows]
    journal = Journal(f"check-{uuid.uuid4().hex}")  # names the calls; nothing is kept of them
    comparison = SeedComparison(
        [evaluation_call(seed, part, Reply) for part in parts],
        lambda call: journal.attempts(journal.ask([request_key(COMPARE, call.about)])[0], COMPARE),
        is_exact=lambda joining: all(is_deterministic(config, each) for each in (leader, joining)),
        width=min(limits.max_concurrency, config.concurrency or limits.max_concurrency),
    )

    @contextlib.asynccontextmanager
    async def slot(_call: Call[Results]) -> AsyncIterator[Endpoint]:
        yield first

    steps, results = [], list[ComparedResult]()
    if has_unknown_code(leader):
        steps.append(_step("warning", f"{first.url}: {UNKNOWN_CODE}"))
    for address in others:
        try:
            endpoint = Endpoint.at(address, config.example_timeout_s)
            async with endpoint.client:
                endpoint.client.read_token()
                described = await endpoint.client.discover(resends=0)
                if has_unknown_code(described):
                    steps.append(_step("warning", f"{endpoint.url}: {UNKNOWN_CODE}"))
                if same_code(leader, described):
                    steps.append(_step("ok", f"{endpoint.url} runs the code of {first.url}, by its digest"))
                    continue
                found = await comparison.compare(endpoint, slot)
        except (ClientError, RpcError) as error:
            steps.append(_step("failed", f"not compared: {naming(address.url, summary(error))}"))
            continue
        steps.append(_judged(config, first.url, endpoint.url, found))
        results += _results(first.url, endpoint.url, found)
    return steps, results


def _judged(config: RunConfig, first: str, url: str, found: Comparison) -> CheckStep:
    if not found.differences:
        return _step("ok", f"{url} gives the results of {first} with the seed, on {len(found.evaluated)} rows")
    shown = f"{url} does not give the results of {first} with the seed: {'; '.join(map(str, found.differences))}"
    return _step("warning" if config.allow_mixed_programs else "failed", shown)


def _step(verdict: StepVerdict, message: str) -> CheckStep:
    return CheckStep(name="servers", verdict=verdict, message=message)


def _results(first: str, url: str, found: Comparison) -> list[ComparedResult]:
    differing = {each.row: each.what for each in found.differences}
    return [
        ComparedResult(
            row=row,
            server=server,
            status=result["status"],
            score=result["score"],
            output=result.get("output"),
            differs=differing.get(row) if server == url else None,
        )
        for row, results in found.evaluated
        for server, result in zip((first, url), results, strict=True)
    ]
