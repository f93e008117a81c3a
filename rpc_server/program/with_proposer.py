"""A program whose new texts a function of this process proposes."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from protocol.errors import ProgramFailed
from rpc_server.program.program import Program
from rpc_server.worker.calls import ExampleCalls
from rpc_server.worker.functions import TEXTS_ADVICE, fault_of_texts, proposed
from rpc_server.worker.reflective_records import put_back
from rpc_server.worker.stdio_server import failure

Propose = Callable[[dict[str, str], dict[str, Any], list[str]], Any]
"""Takes a candidate, its reflective dataset and the components to improve; returns new texts by component."""

METHOD = "propose_new_texts"


class WithProposer:
    """The program, with `proposals`: each is made in a thread of its own."""

    def __init__(self, program: Program, propose: Propose) -> None:
        self._program = program
        self._propose = propose
        self.info = program.info
        self.capabilities = program.capabilities | {"proposals"}
        self.limits = program.limits
        self.splits = program.splits
        self.evaluate, self.score, self.close = program.evaluate, program.score, program.close

    @property
    def ready(self) -> bool:
        """Whether the program is."""
        return self._program.ready

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Propose new texts, or have the program answer.

        Raises:
            RpcError: the program's own, or `ProgramFailed` if the function raised or returned something else.
        """
        if method != METHOD:
            return await self._program.call(method, params)
        components = params["components_to_update"]
        dataset = put_back(params["reflective_dataset"], params.get("images") or {})
        calls = ExampleCalls(takes_strays=False)
        try:
            with calls:
                texts = await asyncio.to_thread(self._propose, dict(params["candidate"]), dataset, list(components))
                if inspect.isawaitable(texts):
                    texts = await texts
        except Exception as problem:  # the user's function may raise anything
            raise ProgramFailed(**failure("propose", problem)) from problem
        if (fault := fault_of_texts(texts, components)) is not None:
            raise ProgramFailed(f"propose() returned {fault}; {TEXTS_ADVICE}", stage="propose")
        return {**proposed(texts), "usage": calls.usage}
