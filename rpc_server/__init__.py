"""`evolverpc serve`: runs beside a program and answers the evaluation protocol over HTTP for it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolverpc_common.settings.sources import SettingsError
    from rpc_server.http import create_app, listening
    from rpc_server.methods.dataset_rows import Datasets
    from rpc_server.program.program import Program
    from rpc_server.settings import Settings, load_settings

__all__ = ["Datasets", "Program", "Settings", "SettingsError", "create_app", "listening", "load_settings"]

_HOMES = {
    "Datasets": "rpc_server.methods.dataset_rows",
    "Program": "rpc_server.program.program",
    "Settings": "rpc_server.settings",
    "SettingsError": "evolverpc_common.settings.sources",
    "create_app": "rpc_server.http",
    "listening": "rpc_server.http",
    "load_settings": "rpc_server.settings",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is used: the command re-executes itself before it needs any of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
