"""Starts and ends the sandboxes that programs are served from, and keeps the keys they must not have."""

from sandbox_runtime.api.egress import Allow, Closed, Egress, GatewaySession, Open, egress_to
from sandbox_runtime.api.sandbox import (
    CommandResult,
    EgressNotEnforced,
    EnvironmentMissing,
    ProcessEndpoint,
    RunningSandbox,
    RuntimeInterrupted,
    RuntimeThrottled,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
    SandboxNotReady,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import Command, PreparedEnvironment, Recipe, ResourceLimits, SandboxSpec
from sandbox_runtime.backends import open_runtime
from sandbox_runtime.backends.process.running_server import ServerFailed, running_server
from sandbox_runtime.runtime import Runtime, Sandbox

__all__ = [
    "open_runtime",
    "Runtime",
    "Sandbox",
    "RunningSandbox",
    "SandboxSpec",
    "ResourceLimits",
    "Command",
    "ServerEndpoint",
    "ProcessEndpoint",
    "CommandResult",
    "SandboxExit",
    "SandboxInfo",
    "Egress",
    "Closed",
    "Allow",
    "Open",
    "egress_to",
    "GatewaySession",
    "Recipe",
    "PreparedEnvironment",
    "SandboxError",
    "RuntimeUnavailable",
    "EgressNotEnforced",
    "EnvironmentMissing",
    "RuntimeInterrupted",
    "SandboxNotReady",
    "RuntimeThrottled",
    "SandboxGone",
    "ServerFailed",
    "running_server",
]
