"""What the results of examples show of the hosts that they call: which answer, and which ask to wait."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gepa_client.fleet import cooldown

Place = tuple[str, str | None]
"""An endpoint and a host that its program calls; None stands for all that the program needs, if no host is named."""

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
    """What the rows of a run found at each place, on the monotonic clock; only of places where a call has failed.

    What counts is when an attempt was sent, as one from before an outage may still succeed during it.
    """

    def __init__(self) -> None:
        self._answered: dict[Place, _Latest] = defaultdict(_Latest)
        self._recovered: dict[Place, _Latest] = defaultdict(_Latest)
        self._seen: dict[Place, _Latest] = defaultdict(_Latest)
        self._failing: dict[Place, dict[str, list[float]]] = {}  # when each row failed since its last success
        self._free_at: dict[str, float] = {}

    def note(self, endpoint: str, row: str, result: Mapping[str, Any], sent: float) -> None:
        """Take the result of a row into account. `sent`: when its attempt was."""
        for host, calls in (result.get("hosts") or {}).items():
            if asked_s := calls.get("retry_after_s") if calls.get("failed") else None:
                free_at = time.monotonic() + min(asked_s, cooldown.LONGEST_REQUESTED_S)
                self._free_at[host] = max(free_at, self._free_at.get(host, 0.0))
        for host, failed, answered in _outcomes(result):
            place = (endpoint, host)
            if failed:
                self._failing.setdefault(place, {})
            if (failing := self._failing.get(place)) is None:
                continue
            if row not in failing:
                self._seen[place].add(row, sent)
            if answered:
                self._answered[place].add(row, sent)
                if failed or row in failing:  # after a failure, in the same attempt or in an earlier one
                    self._recovered[place].add(row, sent)
                failing.pop(row, None)
            elif failed:
                failing.setdefault(row, []).append(time.monotonic())

    def answered(self, place: Place, row: str, since: float) -> bool:
        """Whether an attempt of another row that was sent later succeeded there."""
        return self._answered[place].of_others(row) > since

    def may_pass(self, place: Place, row: str, since: float) -> bool:
        """Whether another row failed there and then succeeded, or failed once and has its second attempt yet to end."""
        if self._recovered[place].of_others(row) > since:
            return True
        failing = self._failing.get(place, {})
        return any(other != row and len(times) == 1 and times[0] > since for other, times in failing.items())

    def seen(self, place: Place, row: str, since: float) -> bool:
        """Whether another row that was not failing there was sent later, and has ended or is a probe."""
        return self._seen[place].of_others(row) > since

    def probing(self, place: Place) -> None:
        """Note that a probe is about to be sent, which serves every row that fails there now."""
        self._seen[place].add("", time.monotonic())

    def settled(self, place: Place, row: str) -> None:
        """Note that the row's failure is its candidate's, so that another candidate's success is no recovery."""
        self._failing[place].pop(row, None)

    def wait_s(self, host: str | None) -> float:
        """Return for how many seconds the host has asked to be left alone."""
        return max(self._free_at.get(host or "", 0.0) - time.monotonic(), 0.0)


def _outcomes(result: Mapping[str, Any]) -> Iterator[tuple[str | None, bool, bool]]:
    """Yield each host with whether calls to it failed, and whether it answered in the end."""
    succeeded = result["status"] in SUCCEEDED
    for host, calls in (result.get("hosts") or {}).items():
        failed = bool(calls.get("failed"))
        yield host, failed, bool(calls.get("succeeded")) and (succeeded or not failed)
    failure = failure_of(result)
    yield None, failure is not None and failure.host is None, succeeded


class _Latest:
    """The latest times of two different rows, which suffice to know the latest of any row's others."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def add(self, row: str, at: float) -> None:
        self._times[row] = max(at, self._times.get(row, at))
        if len(self._times) > 2:
            del self._times[min(self._times, key=self._times.__getitem__)]

    def of_others(self, row: str) -> float:
        return max((at for each, at in self._times.items() if each != row), default=float("-inf"))
