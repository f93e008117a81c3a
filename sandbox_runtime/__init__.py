"""Starts and ends the sandboxes that programs are served from, and keeps the keys they must not have."""

from sandbox_runtime.api.egress import Allow, Closed, Egress, Open, allowing
from sandbox_runtime.api.endpoint import Endpoint, ProcessEndpoint
from sandbox_runtime.api.gateway_session import Passage
from sandbox_runtime.api.recipe import Prepared, Recipe
from sandbox_runtime.api.sandbox import (
    Ended,
    Executed,
    Found,
    Gone,
    NotPrepared,
    NotReady,
    Runtime,
    Sandbox,
    SandboxError,
    Throttled,
    Unavailable,
    Unenforceable,
)
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.process.running_server import ServerFailed, running_server

__all__ = [
    "Runtime",
    "Sandbox",
    "SandboxSpec",
    "Command",
    "Endpoint",
    "ProcessEndpoint",
    "Executed",
    "Ended",
    "Found",
    "Egress",
    "Closed",
    "Allow",
    "Open",
    "allowing",
    "Passage",
    "Recipe",
    "Prepared",
    "SandboxError",
    "Unavailable",
    "Unenforceable",
    "NotPrepared",
    "NotReady",
    "Throttled",
    "Gone",
    "ServerFailed",
    "running_server",
]
