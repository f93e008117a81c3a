"""The API for tests: called without a socket, or served by uvicorn in a thread, on a port of its own."""

import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from evolverpc_common.open_connections import OpenConnections
from gepa_service.api.app import create_app
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.keys import make_key
from gepa_service.auth.oidc import OidcTokens
from gepa_service.auth.permissions import Principal
from gepa_service.auth.recognize import Recognizer
from gepa_service.cli.api_server import BoundedConnection
from gepa_service.model.tenant import TENANTS, Role, Tenant
from gepa_service.records import RecordStore, open_records
from gepa_service.service import Service

READY_S = 30.0


def service_of(
    records: RecordStore, journals: str, recognize: Callable[..., Principal | None] | None = None
) -> Service:
    """Return a service over these stores. `recognize`: by default for keys and tokens of jobs."""
    tokens = JobTokens(records, [b"m" * 32])
    return Service(
        records=records,
        journals=journals,
        recognize=recognize or Recognizer(records, tokens, OidcTokens([])),
        public_url="http://127.0.0.1",
        job_tokens=tokens,
    )


@asynccontextmanager
async def called(app: FastAPI, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run the application while the block runs; yield a client that calls it without a socket."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=url) as client:
        yield client


@contextmanager
def served(service: Service, prepare: Callable[[FastAPI], object] = lambda _: None) -> Iterator[str]:
    """Serve the application while the block runs; yield its URL. `prepare`: gets the application before it starts."""
    app = create_app(service)
    prepare(app)
    with served_app(app) as url:
        yield url


@contextmanager
def served_with_key(folder: Path, role: Role) -> Iterator[tuple[str, str]]:
    """Serve the API over new databases while the block runs; yield its URL, and a key of this role of a tenant."""
    with closing(open_records(str(folder / "records.db"))) as records:
        records.insert(Tenant(tenant=TENANTS, id="acme", name="acme"))
        key, record = make_key("acme", "test", role)
        records.insert(record)
        with served(service_of(records, str(folder / "journals.db"))) as url:
            yield url, key


@contextmanager
def served_app(app: FastAPI, port: int = 0) -> Iterator[str]:
    """Serve an application that was made while the block runs; yield its URL."""
    http: Any = functools.partial(BoundedConnection, OpenConnections())
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_level="error", lifespan="on", http=http, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="api", daemon=True)
    thread.start()
    until = time.monotonic() + READY_S
    while not server.started:
        assert thread.is_alive(), "the API did not start"
        assert time.monotonic() < until, "the API did not start in time"
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(READY_S)
        assert not thread.is_alive(), "the API did not end"
        if (store := vars(getattr(app.state, "service", None) or object).get("store")) is not None:
            store.close()
