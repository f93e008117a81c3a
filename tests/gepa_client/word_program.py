"""A scripted program that learns words, with a hook for every way it can fail."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from protocol import Example
from tests.gepa_client.scripted_server import ScriptedServer, chat_completion

WORDS = ("red", "green", "blue", "pink", "grey", "teal")


def rows(count: int, first: int = 0) -> list[dict[str, str]]:
    """Rows that each need one word in the candidate's text, the words in turn; `text` makes each row its own."""
    return [{"text": f"row {at}", "need": WORDS[at % len(WORDS)]} for at in range(first, first + count)]


@dataclass
class Script:
    """What the server does; `replies` overrides whole methods. `seen` are the requests that came, in their order."""

    seed: dict[str, str] = field(default_factory=lambda: {"rules": ""})
    datasets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ("proposals", "finalize", "datasets")
    name: str = "scripted"
    digest: str | None = "scripted"
    server_name: str = "evolverpc"
    max_concurrency: int = 8
    delay_s: float = 0.0
    evaluate: Callable[[dict[str, Any], dict[str, str]], dict[str, Any]] | None = None
    propose: Callable[[dict[str, Any]], Any] | None = None
    reflect: Callable[[dict[str, Any]], Any] | None = None
    finalize: Callable[[dict[str, Any]], Any] | None = None
    replies: dict[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def calls(self, method: str) -> list[dict[str, Any]]:
        """The params of every call of a method so far."""
        return [params for name, params in list(self.seen) if name == method]

    def server(self) -> ScriptedServer:
        """A server that does so; what is set later is done from then on."""
        made = ScriptedServer()
        made.seed_candidate, made.rows, made.calls = self.seed, self.datasets, self.seen
        made.name, made.digest = self.name, self.digest
        made.server["name"] = self.server_name
        made.capabilities = list(self.capabilities)
        made.limits["max_concurrency"] = self.max_concurrency
        made.evaluate_one = self._evaluate
        made.replies = {
            "make_reflective_dataset": lambda params: (self.reflect or records)(params),
            "propose_new_texts": lambda params: (self.propose or proposed)(params),
            "finalize": lambda params: self.finalize(params) if self.finalize else {"message": "thank you"},
            **self.replies,
        }
        return made

    async def _evaluate(self, candidate: dict[str, str], example: Example, _traced: bool) -> dict[str, Any]:
        await asyncio.sleep(self.delay_s)
        row = self.datasets[example.split][int(example.id)] if example.split else example.data
        assert isinstance(row, dict)
        return (self.evaluate or scored)(row, candidate)

    async def complete(self, request: web.Request) -> web.Response:
        """A language model: it answers with every word of the task that its prompt holds."""
        body = await request.json()
        prompt = body["messages"][0]["content"]
        self.seen.append(("complete", body))
        text = f"Here it is:\n```\n{' '.join(word for word in WORDS if word in prompt)}\n```"
        return chat_completion(body["model"], text)


def scored(data: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
    """1 when any component holds the word the row needs."""
    found = any(data["need"] in text.split() for text in candidate.values())
    return {
        "status": "ok",
        "score": 1.0 if found else 0.0,
        "output": f"{data['need']} {'found' if found else 'missing'}",
        "feedback": f"needs {data['need']}",
        "seconds": 0.001,
    }


def records(params: dict[str, Any]) -> dict[str, Any]:
    """One record per traced example, for every component asked for."""
    feedback = [
        {"Feedback": result["feedback"]} for result in params["eval_batch"]["results"] if result.get("feedback")
    ]
    return {"dataset": dict.fromkeys(params["components_to_update"], feedback)}


def proposed(params: dict[str, Any]) -> dict[str, Any]:
    """Each component's text with the first word its records ask for."""
    texts = {}
    for component in params["components_to_update"]:
        known = params["candidate"][component].split()
        wanted = [record["Feedback"].split()[-1] for record in params["reflective_dataset"][component]]
        fresh = [word for word in wanted if word not in known]
        texts[component] = " ".join(known + fresh[:1])
    return {"texts": texts}
