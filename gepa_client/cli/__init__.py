"""The command `gepa-client`: what it can do, and nothing loaded that the chosen command does not need."""

from gepa_client.cli.app import main

__all__ = ["main"]
