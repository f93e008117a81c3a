"""The command `evolverpc service`."""

from gepa_service.cli.app import main

__all__ = ["main"]
