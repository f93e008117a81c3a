"""What the results of rows show: at which endpoints others succeed, and which hosts ask to wait."""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gepa_client.fleet import cooldown

LONGEST_REASON = 256
SUCCEEDED = ("ok", "rollout")


@dataclass(frozen=True)
class Failure:
    """Why an example was an `infra_error`. `host`: that failed, None if the result names none; `reason`: how."""

    host: str | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.host is None else f"{self.host} {self.reason}"


def failure_of(result: Mapping[str, Any]) -> Failure | None:
    """Return why a result is an `infra_error`, by the host that failed most often; None for any other status."""
    if result["status"] != "infra_error":
        return None
    hosts = result.get("hosts") or {}
    failed = {host: calls.get("failed", 0) for host, calls in sorted(hosts.items()) if calls.get("failed")}
    if not failed:
        return Failure(None, str((result.get("error") or {}).get("type") or "unknown")[:LONGEST_REASON])
    host = max(failed, key=failed.__getitem__)
    return Failure(host, hosts[host].get("reason") or "failed")


class HostEvidence:
    """What the rows of a run found at each endpoint, on the monotonic clock; and which hosts ask to wait.

    What counts is when an attempt was sent, as one from before an outage may still succeed during it. `probing`: held
    while rows are run again only to be evidence, which serves every row that fails.
    """

    def __init__(self) -> None:
        self._endpoints: dict[str, _Endpoint] = defaultdict(_Endpoint)
        self._free_at: dict[str, float] = {}
        self.probing = asyncio.Lock()

    def note(self, endpoint: str, row: str, result: Mapping[str, Any], sent: float) -> None:
        """Take the result of a row into account. `sent`: when its attempt was."""
        hosts = result.get("hosts") or {}
        for host, calls in hosts.items():
            if asked_s := calls.get("retry_after_s") if calls.get("failed") else None:
                free_at = time.monotonic() + min(asked_s, cooldown.LONGEST_REQUESTED_S)
                self._free_at[host] = max(free_at, self._free_at.get(host, 0.0))
        if result["status"] == "cancelled":
            return
        at = self._endpoints[endpoint]
        at.ended.add(row, sent)
        if failure_of(result) is not None:
            at.failing.setdefault(row, []).append(time.monotonic())
            return
        met_failures = any(calls.get("failed") for calls in hosts.values())
        reached = any(calls.get("succeeded") for calls in hosts.values()) and not met_failures
        if result["status"] in SUCCEEDED or reached:
            at.succeeded.add(row, sent)
            if met_failures or row in at.failing:  # in the same attempt or in an earlier one
                at.recovered.add(row, sent)
        self.settled([row])

    def succeeded(self, endpoint: str, row: str, since: float) -> int:
        """Return how many other rows succeeded there in an attempt that was sent later."""
        return len(self._endpoints[endpoint].succeeded.others(row, since))

    def failing(self, endpoint: str, row: str) -> set[str]:
        """Return the other rows that failed there in their last attempt, and have no other result since."""
        return self._endpoints[endpoint].failing.keys() - {row}

    def may_pass(self, endpoint: str, row: str, since: float) -> bool:
        """Whether another row failed there and then succeeded, or failed once and has its second attempt yet to end."""
        failing = self._endpoints[endpoint].failing
        begun = any(other != row and len(times) == 1 and times[0] > since for other, times in failing.items())
        return begun or self.recovered(endpoint, row, since)

    def recovered(self, endpoint: str, row: str, since: float) -> bool:
        """Whether another row failed there and then succeeded in an attempt that was sent later."""
        return bool(self._endpoints[endpoint].recovered.others(row, since))

    def ended(self, endpoint: str, row: str, since: float) -> set[str]:
        """Return the other rows that were sent there later, and have ended."""
        return self._endpoints[endpoint].ended.others(row, since)

    def settled(self, rows: Iterable[str]) -> None:
        """Note that these rows have their results, or are tried no more: another candidate's success is no recovery."""
        for row, each in itertools.product(rows, self._endpoints.values()):
            each.failing.pop(row, None)

    def wait_s(self, host: str | None) -> float:
        """Return for how many seconds the host has asked to be left alone."""
        return max(self._free_at.get(host or "", 0.0) - time.monotonic(), 0.0)


class _Sent:
    """When the latest attempt of each row was sent, in the order in which they ended."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, float]] = {}

    def add(self, row: str, sent: float) -> None:
        self._rows.pop(row, None)
        self._rows[row] = (sent, time.monotonic())

    def others(self, row: str, since: float) -> set[str]:
        """Return the rows but this one whose attempt was sent later."""
        ended = itertools.takewhile(lambda each: each[1][1] > since, reversed(self._rows.items()))
        return {other for other, (sent, _) in ended if sent > since and other != row}


@dataclass
class _Endpoint:
    """`ended`, `succeeded`, `recovered`: rows, by what their attempts were; `failing`: when rows failed since."""

    ended: _Sent = field(default_factory=_Sent)
    succeeded: _Sent = field(default_factory=_Sent)
    recovered: _Sent = field(default_factory=_Sent)
    failing: dict[str, list[float]] = field(default_factory=dict)
