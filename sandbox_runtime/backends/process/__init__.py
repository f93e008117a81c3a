"""Sandboxes that are plain processes of this machine, for development: they isolate nothing."""

from sandbox_runtime.backends.process.runtime import ISOLATES_NOTHING, ProcessRuntime

__all__ = ["ISOLATES_NOTHING", "ProcessRuntime"]
