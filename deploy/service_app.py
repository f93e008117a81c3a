"""The service at Modal: its API as a web endpoint, each attempt as a call of a function; see README.md here."""

import atexit
import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import modal

EXTRAS = "service,modal"
WHEEL = os.environ.get("EVOLVERPC_WHEEL")
"""A wheel of your own, built from a checkout, in place of the package on PyPI."""

NAME = "evolverpc-service"
SECRET = "evolverpc-service"  # noqa: S105  a name
"""The secret at Modal with the databases and the master key."""

REQUIRED = ["GEPA_SERVICE_DATABASE", "GEPA_SERVICE_JOURNALS", "GEPA_SERVICE_MASTER_KEY"]

JOBS = 40
"""Jobs at the same time, and as many batches and steps: each in a container of its own."""

CPU, MEMORY_MB = 0.5, 1024
"""Of the container of an attempt: programs and optimizers are in sandboxes of their own."""

LONGEST_S = 24 * 3600
"""As long as Modal lets a function run."""

DRAIN_S = 900
"""Seconds before that in which an attempt hands its work back, which the next one continues."""

RESTART_S = 5.0
"""Seconds after which a dispatcher that failed is started again."""

REQUEST_S = 3600
"""Seconds of the longest request: a stream. Its client continues after its last event with another request."""

WORK = Path(tempfile.gettempdir(), "work")
"""Of a container, and its own."""

_log = logging.getLogger(__name__)


def _image() -> modal.Image:
    base = modal.Image.debian_slim(python_version="3.12").apt_install("git", "ca-certificates")
    if WHEEL is None or not modal.is_local():
        return base.uv_pip_install(f"evolverpc[{EXTRAS}]")
    there = f"/root/{Path(WHEEL).name}"
    return (
        base.pip_install("uv")
        .add_local_file(WHEEL, there, copy=True)
        .run_commands(f"uv pip install --system '{there}[{EXTRAS}]'")
    )


app = modal.App(NAME, image=_image())
secret = modal.Secret.from_name(SECRET, required_keys=REQUIRED)


@app.function(secrets=[secret], min_containers=1, timeout=REQUEST_S)
@modal.concurrent(max_inputs=500)
@modal.asgi_app()
def api() -> Any:
    """Serve the HTTP API, the application of `evolverpc service api`, and dispatch work if no other container does."""
    from gepa_service.api.app import create_app

    parts = contextlib.ExitStack()
    atexit.register(parts.close)
    service = parts.enter_context(_opened())
    application = create_app(service)
    serving = application.router.lifespan_context

    @contextlib.asynccontextmanager
    async def serving_and_dispatching(served: Any) -> AsyncIterator[Any]:
        async with serving(served) as state:
            with _dispatching(service):
                yield state

    application.router.lifespan_context = serving_and_dispatching
    return application


@app.function(cpu=CPU, memory=MEMORY_MB, timeout=LONGEST_S, retries=0, single_use_containers=True)
def attempt(work_id: str, token: str, api_url: str, version: str) -> None:
    """Make an attempt at a work: until it ends, the time of a function is nearly over, or Modal cancels the call.

    It has no secret of the service: by its token the API gives it those of its tenant.
    """
    from gepa_service.cli.dispatcher_and_engine import place_of
    from gepa_service.jobs.attempt import run_on_node

    stop = threading.Event()
    place = place_of(api=api_url, folder=WORK, sandbox="modal", forward=forwarded)
    WORK.mkdir(parents=True, exist_ok=True)
    running = threading.Thread(target=run_on_node, args=(work_id, token, place, version, stop), name=work_id)
    running.start()
    try:
        running.join(LONGEST_S - DRAIN_S)
    finally:
        stop.set()
        running.join()


@app.function(secrets=[secret], timeout=120)
def check() -> None:
    """Open the databases with the master key, or print what to change in the secret."""
    with _opened():
        print("the databases and the master key can be used")


@contextlib.contextmanager
def _dispatching(service: Any) -> Iterator[None]:
    """Run a dispatcher in a thread for the block: one of all containers has the lease and places work."""
    from gepa_service.cli.arguments import MODAL
    from gepa_service.cli.dispatcher_and_engine import dispatch, place_of

    stop = threading.Event()
    place = place_of(api=service.public_url, folder=WORK, sandbox="modal")

    def run() -> None:
        while not stop.is_set():
            try:
                dispatch(service, place, JOBS, stop, MODAL)
            except Exception:  # noqa: BLE001  what has failed is logged, and work is to be placed still
                _log.exception("the dispatcher has failed, and is started again in %g s", RESTART_S)
                stop.wait(RESTART_S)

    thread = threading.Thread(target=run, name="dispatcher")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def forwarded(port: int) -> Iterator[str]:
    """Make a port of this container reachable from sandboxes for the block; yield its address."""
    from sandbox_runtime.backends.modal.api_calls import translated_errors

    with contextlib.ExitStack() as stack:
        with translated_errors("forward a port"):
            tunnel = stack.enter_context(modal.forward(port))
        yield tunnel.url


@contextlib.contextmanager
def _opened() -> Iterator[Any]:
    from gepa_service.cli.service_configuration import opened_in_container

    secret = f"the secret {SECRET!r} of Modal: modal secret create {SECRET} --force NAME=VALUE ..."
    with opened_in_container(os.environ, secret, api.get_web_url()) as service:
        yield service
