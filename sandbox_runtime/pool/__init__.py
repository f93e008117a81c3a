"""Keep as many sandboxes running as there is work for, and list them in an endpoints file."""

from sandbox_runtime.pool.endpoints_file import (
    EndpointsFile,
    endpoints_folder,
    endpoints_folders,
    sweep_endpoints_folders,
)
from sandbox_runtime.pool.interfaces import PoolEvent, PoolFailed, StartSandbox
from sandbox_runtime.pool.pool import SandboxPool

__all__ = [
    "SandboxPool",
    "EndpointsFile",
    "StartSandbox",
    "PoolEvent",
    "PoolFailed",
    "endpoints_folder",
    "endpoints_folders",
    "sweep_endpoints_folders",
]
