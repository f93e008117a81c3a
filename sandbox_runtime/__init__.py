"""Starts and ends the sandboxes that programs are served from, and keeps the keys they must not have."""

from sandbox_runtime.egress import Allow, Closed, Egress, Open, allowing
from sandbox_runtime.endpoint import Endpoint, ProcessEndpoint
from sandbox_runtime.passage import Passage
from sandbox_runtime.recipe import Prepared, Recipe
from sandbox_runtime.running_server import ServerFailed, running_server
from sandbox_runtime.sandbox import (
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
from sandbox_runtime.spec import Command, SandboxSpec

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
