"""Stands beside a program and answers the evaluation protocol over HTTP for it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpc_server.app import create_app, listening
    from rpc_server.config import SettingsError, load_settings
    from rpc_server.datasets import Datasets
    from rpc_server.program import Program
    from rpc_server.settings import Settings

__all__ = ["Datasets", "Program", "Settings", "SettingsError", "create_app", "listening", "load_settings"]

_HOMES = {
    "Datasets": "datasets",
    "Program": "program",
    "Settings": "settings",
    "SettingsError": "config",
    "create_app": "app",
    "listening": "app",
    "load_settings": "config",
}


def __getattr__(name: str) -> Any:
    """The public names, imported when used: the command starts itself anew before it needs any of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
