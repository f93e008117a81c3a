"""The sandboxes of one job or piece of work, from their start to their end."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from gepa_client.sandboxing.session import SandboxSession, SessionNotStarted
from gepa_client.sandboxing.session_interface import LABEL_LENGTH, RUN_LABEL, Log
from gepa_client.sandboxing.session_messages import OpenSetup
from gepa_client.sandboxing.setup import publish
from gepa_client.settings.run_config import RunConfig
from sandbox_runtime import SandboxError
from sandbox_runtime.backends import open_runtime

Show = Callable[[Log], None]

CLOSED_LATE = Log("not all sandboxes have ended in time", is_warning=True)


@contextlib.contextmanager
def started_session(
    settings: RunConfig,
    run_id: str,
    setup: OpenSetup,
    show: Show,
    progress: Callable[[str], None] = lambda _text: None,
    *,
    spent_usd: float = 0.0,
) -> Iterator[SandboxSession]:
    """Start the sandboxes that the settings describe, for the block; an image that Modal lacks is built first.

    `setup`: opens what the sandboxes need, `open_setup`.

    Raises:
        SessionNotStarted: none became ready. SandboxError: its image cannot be built.
    """
    session = SandboxSession(settings, run_id, setup, size=settings.sandboxes)
    try:
        try:
            session.start(show, progress, spent_usd=spent_usd)
        except SessionNotStarted as error:
            if not error.must_publish:
                raise
            session.close()
            asyncio.run(_published(settings, show))
            session = SandboxSession(settings, run_id, setup, size=settings.sandboxes)
            session.start(show, progress, spent_usd=spent_usd)
        yield session
    finally:
        if not session.close():
            show(CLOSED_LATE)


async def _published(settings: RunConfig, show: Show) -> None:
    try:
        await publish(settings, lambda text: show(Log(text)))
    except SandboxError as error:
        raise SessionNotStarted(error, must_publish=False) from error


def end_earlier_attempts(run_id: str, settings: RunConfig) -> None:
    """End the sandboxes that earlier attempts of a job left at Modal: their worker is gone. Raises `SandboxError`."""

    async def sweep() -> None:
        async with open_runtime(settings.sandbox, app_name=settings.modal_app) as runtime:
            await runtime.sweep({RUN_LABEL: run_id[:LABEL_LENGTH]}, orphans_only=False)

    asyncio.run(sweep())
