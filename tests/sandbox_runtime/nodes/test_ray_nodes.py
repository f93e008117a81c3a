"""What is asked of a Ray cluster for the hosts of a run, with a stand-in for Ray."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

ray = pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, GetTimeoutError  # noqa: E402  only with Ray

from sandbox_runtime.nodes import ray_nodes  # noqa: E402

GIB = 2**30


class Cluster:
    """Four nodes of 4 processors. `actors`: the options of each, by its number; `results`: of references, if ready."""

    def __init__(self) -> None:
        self.actors: dict[int, dict[str, Any]] = {}
        self.results: dict[str, Any] = {}
        self.killed: list[int] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0, "memory": 16.0 * GIB}} for _ in range(4)]

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda _: self._actor(options)))

    def _actor(self, options: dict[str, Any]) -> Any:
        number = len(self.actors)
        self.actors[number] = options
        methods = {
            name: SimpleNamespace(remote=lambda name=name: f"{number} {name}") for name in ("listening", "ended")
        }
        return SimpleNamespace(number=number, **methods)

    def wait(self, references: list[str], **_: Any) -> Any:
        return [each for each in references if each in self.results], []

    def get(self, reference: str, **_: Any) -> Any:
        if isinstance(result := self.results[reference], Exception):
            raise result
        return result

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.number)


def test_hosts_are_made_smaller_if_they_wait_and_replaced_only_once_they_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, now = Cluster(), [0.0]
    for name in ("nodes", "remote", "wait", "get", "kill"):
        monkeypatch.setattr(ray, name, getattr(cluster, name))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(ray_nodes, "_asked", [])

    def hosts() -> tuple[list[int], list[int]]:
        """The rooms of those that listen, and of all."""
        now[0] += 40.0
        found, _, _ = ray_nodes._hosts(8, 1.0, 2 * GIB)
        return [each.room for each in found], [each.room for each in ray_nodes._asked]

    assert hosts() == ([], [2, 2, 2, 2])
    assert cluster.actors[0]["memory"] == 4 * GIB
    for number in range(3):
        cluster.results[f"{number} listening"] = ("10.0.0.1", f"http://10.0.0.1:{number}")
    assert hosts() == ([2, 2, 2], [2, 2, 2, 1, 1])
    cluster.results["0 listening"] = GetTimeoutError("slow")
    assert hosts()[1] == [2, 2, 2, 1, 1]
    assert cluster.killed == [3]
    cluster.results["0 ended"] = ActorDiedError()
    assert hosts()[1] == [2, 2, 1, 1, 2]
    assert cluster.killed == [3, 0]
