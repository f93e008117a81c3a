"""The service at Modal: its API as a web endpoint, its workers as functions; see README.md here."""

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

JOBS_EACH = 4
"""Jobs that one worker runs at the same time."""

FEWEST_WORKERS, MOST_WORKERS = 0, 20
"""With 0, the first job waits until `scale` has started a worker, up to a minute."""

LONGEST_S = 24 * 3600
"""As long as Modal lets a function run."""

DRAIN_S = 900
"""Seconds before that in which a worker hands its jobs back, so that other workers continue them."""

IDLE_S = 300
"""Seconds without work after which a worker ends."""

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


@app.function(cpu=2.0, memory=4096, timeout=LONGEST_S, max_containers=MOST_WORKERS, single_use_containers=True)
def worker() -> None:
    """Run jobs, batches and steps until there is no work, the time of a function is nearly over, or Modal ends it."""
    from gepa_client.journal.store import open_store
    from gepa_service.cli.worker_parts import make_worker, sender_of, work
    from gepa_service.jobs.worker import LEASE_S

    logging.basicConfig(level=logging.WARNING, format="worker: %(levelname)s: %(message)s")
    with _opened() as service, contextlib.closing(open_store(service.journals)) as store:
        made = make_worker(
            service,
            store,
            api=service.public_url,
            folder=Path(WORK),
            jobs=JOBS_EACH,
            sandbox="modal",
            lease_s=LEASE_S,
            forward=forwarded,
        )
        begun = time.monotonic()
        busy = begun

        def is_over() -> bool:
            nonlocal busy
            present = time.monotonic()
            if made.is_busy:
                busy = present
            return present - begun > LONGEST_S - DRAIN_S or present - busy > IDLE_S

        work(made, sender_of(service), is_over)


@app.function(schedule=modal.Period(minutes=1), timeout=120, max_containers=1)
def scale() -> int:
    """Start the workers that the present work lacks; return how many were started."""
    from gepa_service.cli.arguments import open_cli_records
    from gepa_service.jobs.demand import workers_wanted

    with open_cli_records(_settings()["GEPA_SERVICE_DATABASE"]) as records:
        wanted = max(FEWEST_WORKERS, workers_wanted(records, JOBS_EACH, MOST_WORKERS))
    present = worker.get_current_stats()
    lacking = max(0, wanted - present.backlog - present.num_running_inputs)
    for _ in range(lacking):
        worker.spawn()
    return lacking


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
