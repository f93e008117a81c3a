"""Keeps on this machine what programs need installed, built once for each recipe."""

from sandbox_runtime.environments.cache import EnvironmentCache
from sandbox_runtime.environments.store import BuiltEnvironment, Run

__all__ = ["BuiltEnvironment", "EnvironmentCache", "Run"]
