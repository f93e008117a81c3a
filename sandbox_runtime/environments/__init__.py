"""Environments of programs on this machine, built once for each recipe."""

from sandbox_runtime.environments.build_folder import BuiltEnvironment, RunBuildCommand
from sandbox_runtime.environments.cache import EnvironmentCache

__all__ = ["BuiltEnvironment", "EnvironmentCache", "RunBuildCommand"]
