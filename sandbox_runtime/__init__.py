"""Starts and ends the processes that programs are served from."""

from sandbox_runtime.process import Endpoint, ServerFailed, running_server

__all__ = ["Endpoint", "ServerFailed", "running_server"]
