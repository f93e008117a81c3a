"""The way out of a sandbox: real keys are put on here, outside of it, and only what was allowed gets through."""

from sandbox_runtime.gateway.calls import ModelCall, Refusal, Tokens
from sandbox_runtime.gateway.gateway import Gateway, Listen
from sandbox_runtime.gateway.policy import Policy
from sandbox_runtime.gateway.providers import Provider, anthropic, configured, known, openai

__all__ = [
    "Gateway",
    "Listen",
    "Policy",
    "Provider",
    "openai",
    "anthropic",
    "known",
    "configured",
    "ModelCall",
    "Tokens",
    "Refusal",
]
