"""The engine of Modal: each attempt is a call of the function `attempt` of the deployed app."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

import modal
from modal import exception

from gepa_service.engines.engine import EngineRefused, EngineUnavailable
from gepa_service.model.work import Work
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.backends.modal.api_calls import REFUSED, TRANSIENT, translated_errors

APP, FUNCTION = "evolverpc-service", "attempt"

ASK_S = 5.0
"""Seconds between two questions whether a call has ended."""

GRACE_S = 60.0
"""Seconds that an attempt has to notice that it is over, and to remove what it made; then its call is cancelled."""


class ModalEngine:
    """Its attempts continue after the `with` block.

    `arguments`: what the function is called with. Modal keeps them, so they hold no secret but a token.
    """

    def __init__(self, arguments: Callable[[Work], tuple[str, ...]]) -> None:
        self._arguments = arguments
        self._seen: dict[str, float] = {}
        """When each call was last known to run."""
        self._over: dict[str, float] = {}
        """When calls that are to be stopped are cancelled."""

    def __enter__(self) -> Self:
        """Look the function up. Raises `EngineRefused`; if Modal does not answer, `start` looks it up."""
        try:
            _function().hydrate()
        except exception.NotFoundError:
            what = f"Modal has no function {FUNCTION!r} of an app {APP!r}"
            raise EngineRefused(f"{what}: modal deploy deploy/service_app.py makes it") from None
        except REFUSED as error:
            raise EngineRefused(f"Modal refuses the token: {error}; make one by `modal token new`") from None
        except TRANSIENT:
            pass
        return self

    def __exit__(self, *_: object) -> None:
        """Leave its calls as they are."""

    @property
    def nodes(self) -> int:
        """One for each call that runs or waits."""
        return len(self._seen)

    def start(self, work: Work) -> str:
        with _reported("start an attempt"):
            call: str = _function().spawn(*self._arguments(work)).object_id
        self._seen[call] = time.monotonic()
        return call

    def stop(self, work: Work) -> None:
        if work.call is not None:
            self._over[work.call] = time.monotonic() + GRACE_S

    def ended(self, running: Sequence[Work]) -> list[Work]:
        present = time.monotonic()
        for call in [call for call, moment in self._over.items() if present >= moment]:
            with _reported("cancel an attempt"), suppress(exception.NotFoundError):
                modal.FunctionCall.from_id(call).cancel()
            del self._over[call]
        seen = {work.call: self._seen.get(work.call, -math.inf) for work in running if work.call is not None}
        due = [call for call, moment in seen.items() if present - moment >= ASK_S]
        with _reported("ask for attempts"):
            runs = asyncio.run(_run(due))
        self._seen = {call: present if call in runs else seen[call] for call in seen if call in runs or call not in due}
        return [work for work in running if work.call not in self._seen]


def _function() -> Any:
    return modal.Function.from_name(APP, FUNCTION)


async def _run(calls: Sequence[str]) -> set[str]:
    """Return those of these calls that run, or wait to be run. Raises Modal's errors if it cannot be asked."""
    answers = await asyncio.gather(*(_runs(call) for call in calls))
    return {call for call, runs in zip(calls, answers, strict=True) if runs}


async def _runs(call: str) -> bool:
    try:
        await modal.FunctionCall.from_id(call).get.aio(timeout=0)
    except TimeoutError:
        return True
    except (*REFUSED, *TRANSIENT, exception.ResourceExhaustedError):
        raise
    except (Exception, exception.InputCancellation):  # noqa: BLE001  the call's own: it failed, or is not known
        return False
    return False


@contextmanager
def _reported(what: str) -> Iterator[None]:
    try:
        with translated_errors(what):
            yield
    except SandboxError as error:
        raise EngineUnavailable(str(error)) from error
