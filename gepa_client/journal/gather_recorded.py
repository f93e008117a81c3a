"""Requests that run no examples, several at once: what is recorded is not asked for, the rest is recorded."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gepa_client.errors import BadResponse
from gepa_client.journal.journal import Journal, Slot
from gepa_client.journal.requests import Request
from gepa_client.transport.task_group import Job, run_all
from protocol import JsonValue
from protocol.errors import ProgramFailed

FAILURES = (ProgramFailed, BadResponse)
"""What a request may come to without ending the run: the program could not, or answered what is no answer."""

Make = Callable[[int, Slot, Job], Awaitable[JsonValue]]
"""Does what the request at this place asks for; sets `begun` of its job once it is sent."""


async def all_at_once(journal: Journal, requests: Sequence[Request], make: Make) -> list[Any]:
    """The answer to each request, or the exception in its place that is one of `FAILURES`; all of it recorded.

    Raises:
        Interrupted: the run must stop. RpcError, ClientError: anything else that `make` raises.
    """
    slots = journal.ask(requests)
    answers: list[Any] = [slot.failure or slot.answer if slot.entry is not None else None for slot in slots]
    missing = [at for at, slot in enumerate(slots) if slot.entry is None]
    if not missing:
        return answers
    failed: dict[int, Exception] = {}

    async def one(at: int, job: Job) -> None:
        try:
            answer = await make(at, slots[at], job)
        except FAILURES as error:
            answers[at] = failed[at] = error
        else:
            [answers[at]] = journal.record((slots[at], answer))

    with journal.live(slots):
        try:
            await run_all([Job(functools.partial(one, at)) for at in missing])
        finally:
            for at in sorted(failed):  # in the order of the requests, whichever failed first
                journal.fail(slots[at], failed[at])
            await journal.settled()
    return answers
