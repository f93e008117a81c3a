"""The gateway of sandboxes: it adds the real API keys outside of them and forwards only what is allowed."""

from evolverpc_common.model_prices import TokenCounts
from sandbox_runtime.gateway.events import CapReached, GatewayEvent, GatewayRefusal, HostConnection, ProviderCall
from sandbox_runtime.gateway.gateway import Gateway, GatewayPorts
from sandbox_runtime.gateway.package_registries import registry_headers
from sandbox_runtime.gateway.providers import (
    Provider,
    SecretHeader,
    anthropic,
    configured,
    known,
    openai,
)
from sandbox_runtime.gateway.request_policy import GatewayPolicy

__all__ = [
    "Gateway",
    "GatewayPorts",
    "GatewayPolicy",
    "Provider",
    "SecretHeader",
    "openai",
    "anthropic",
    "known",
    "configured",
    "registry_headers",
    "ProviderCall",
    "TokenCounts",
    "GatewayRefusal",
    "HostConnection",
    "CapReached",
    "GatewayEvent",
]
