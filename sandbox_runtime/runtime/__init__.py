"""Sandboxes of all backends: everything that does not depend on which one makes them."""

from sandbox_runtime.runtime.runtime import Runtime
from sandbox_runtime.runtime.sandbox import Sandbox

__all__ = ["Runtime", "Sandbox"]
