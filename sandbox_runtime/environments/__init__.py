"""Environments of programs on this machine, built once for each recipe."""

from sandbox_runtime.environments.cache import EnvironmentCache
from sandbox_runtime.environments.store import BuiltEnvironment, RunBuildCommand

__all__ = ["BuiltEnvironment", "EnvironmentCache", "RunBuildCommand"]
