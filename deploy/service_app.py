"""The service at Modal: its API as a web endpoint, its dispatcher as a function; see README.md here."""

import atexit
import contextlib
import logging
import os
import time
from collections.abc import Iterator
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
"""Jobs at the same time, and as many batches and steps: what they do is in sandboxes of their own."""

CPU, MEMORY_MB = 4.0, 16384
"""Of the dispatcher's container: about 150 MB for each of them."""

ALWAYS_ON = False
"""Whether a dispatcher runs without work too. If not, the first job waits until there is one, up to a minute."""

LONGEST_S = 24 * 3600
"""As long as Modal lets a function run."""

DRAIN_S = 900
"""Seconds before that in which a dispatcher hands its work back, which the next one continues."""

IDLE_S = 300
"""Seconds without work after which a dispatcher ends."""

REQUEST_S = 3600
"""Seconds of the longest request: a stream. Its client continues after its last event with another request."""

WORK = "/tmp/work"  # noqa: S108  of a container, and its own


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


app = modal.App(NAME, image=_image(), secrets=[modal.Secret.from_name(SECRET, required_keys=REQUIRED)])


@app.function(min_containers=1, timeout=REQUEST_S)
@modal.concurrent(max_inputs=500)
@modal.asgi_app()
def api() -> Any:
    """Serve the HTTP API: the application of `evolverpc service api`."""
    from gepa_service.api.app import create_app

    parts = contextlib.ExitStack()
    atexit.register(parts.close)
    return create_app(parts.enter_context(_opened()))


@app.function(cpu=CPU, memory=MEMORY_MB, timeout=LONGEST_S, max_containers=1, single_use_containers=True)
def dispatcher() -> None:
    """Run jobs, batches and steps until there is no work, the time of a function is nearly over, or Modal ends it."""
    from gepa_client.journal.store import open_store
    from gepa_service.api.request_log import configure_logs
    from gepa_service.cli.dispatcher_parts import dispatch, place_of, sender_of

    configure_logs("dispatcher", logging.WARNING)
    with _opened() as service, contextlib.closing(open_store(service.journals)) as store:
        parts = service.attempt_parts(store)
        place = place_of(api=service.public_url, folder=Path(WORK), sandbox="modal", forward=forwarded)
        begun = time.monotonic()
        last_busy = begun

        def is_over(is_busy: bool) -> bool:
            nonlocal last_busy
            present = time.monotonic()
            if is_busy:
                last_busy = present
            return present - begun > LONGEST_S - DRAIN_S or present - last_busy > IDLE_S

        dispatch(parts, place, JOBS, sender_of(service), is_over)


@app.function(schedule=modal.Period(minutes=1), timeout=120, max_containers=1)
def start() -> bool:
    """Start a dispatcher if there is work and none runs; return whether one was started."""
    from gepa_service.cli.arguments import open_cli_records
    from gepa_service.jobs.queue import is_needed

    with open_cli_records(_settings()["GEPA_SERVICE_DATABASE"]) as records:
        wanted = ALWAYS_ON or is_needed(records)
    present = dispatcher.get_current_stats()
    if not wanted or present.backlog + present.num_running_inputs:
        return False
    dispatcher.spawn()
    return True


@app.function(timeout=120)
def check() -> None:
    """Open the databases with the master key, or print what to change in the secret."""
    with _opened():
        print("the databases and the master key can be used")


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
    from gepa_service.cli.container_settings import opened_in_container

    with opened_in_container(_settings(), api.get_web_url()) as service:
        yield service


def _settings() -> Any:
    from gepa_service.cli.container_settings import read_settings

    return read_settings(
        os.environ, f"the secret {SECRET!r} of Modal: modal secret create {SECRET} --force NAME=VALUE ..."
    )
