"""The optimizer's side: GEPA over programs behind a server. Names are imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gepa_client.extras import missing as _missing

if TYPE_CHECKING:
    from gepa_client.adapter import RemoteAdapter
    from gepa_client.batches import Trajectory
    from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Interrupted, Refused, RowsError
    from gepa_client.failures import Failure, Failures
    from gepa_client.fleet import FleetEvent
    from gepa_client.journal.spend import Tally
    from gepa_client.litellm_model import LiteLLMModel
    from gepa_client.reflection import ConcurrentReflection, ProgramReflection
    from gepa_client.result import load_result
    from gepa_client.rows import HeldRow, Row, RowLoader, load_rows
    from gepa_client.rpc import RpcClient
    from gepa_client.window import ExampleDone

__all__ = [
    "BadResponse",
    "ClientError",
    "ConcurrentReflection",
    "ConnectionLost",
    "ExampleDone",
    "Failure",
    "Failures",
    "FleetEvent",
    "HeldRow",
    "Interrupted",
    "LiteLLMModel",
    "ProgramReflection",
    "Refused",
    "RemoteAdapter",
    "Row",
    "RowLoader",
    "RowsError",
    "RpcClient",
    "Tally",
    "Trajectory",
    "load_result",
    "load_rows",
]

_HOMES = {
    "adapter": ("RemoteAdapter",),
    "batches": ("Trajectory",),
    "errors": ("BadResponse", "ClientError", "ConnectionLost", "Interrupted", "Refused", "RowsError"),
    "failures": ("Failure", "Failures"),
    "fleet": ("FleetEvent",),
    "journal.spend": ("Tally",),
    "litellm_model": ("LiteLLMModel",),
    "reflection": ("ConcurrentReflection", "ProgramReflection"),
    "result": ("load_result",),
    "rows": ("HeldRow", "Row", "RowLoader", "load_rows"),
    "rpc": ("RpcClient",),
    "window": ("ExampleDone",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import lazily: gepa and aiohttp take a quarter of a second that `gepa-client --help` need not wait."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if (absent := _missing()) is not None:
        raise ModuleNotFoundError(absent)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
