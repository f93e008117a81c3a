"""The optimizer's side: GEPA over programs behind a server. Names are imported when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evolverpc_common.installation import find_collision as _find_collision
from evolverpc_common.installation import missing_packages as _missing_packages

# Before anything else of ours is imported: beside a script, a user's `protocol.py` comes first.
if (_collision := _find_collision()) is not None:
    raise ImportError(_collision)

if TYPE_CHECKING:
    from gepa_client.analysis.gepa_result import load_result
    from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Interrupted, Refused, RowsError
    from gepa_client.fleet import FleetEvent
    from gepa_client.gepa.adapter import RemoteAdapter
    from gepa_client.gepa.batch_evaluator import ExampleDone
    from gepa_client.gepa.evaluation_results import Trajectory
    from gepa_client.gepa.hooks import Failure, Failures
    from gepa_client.gepa.litellm_model import LiteLLMModel
    from gepa_client.gepa.reflection_strategies import ConcurrentDatasets, ConcurrentReflection, ProgramReflection
    from gepa_client.gepa.rows import Row, RowLoader, ServerRow, load_rows
    from gepa_client.journal.requests import Tally
    from gepa_client.transport.rpc_client import RpcClient

__all__ = [
    "BadResponse",
    "ClientError",
    "ConcurrentDatasets",
    "ConcurrentReflection",
    "ConnectionLost",
    "ExampleDone",
    "Failure",
    "Failures",
    "FleetEvent",
    "Interrupted",
    "LiteLLMModel",
    "ProgramReflection",
    "Refused",
    "RemoteAdapter",
    "Row",
    "RowLoader",
    "RowsError",
    "RpcClient",
    "ServerRow",
    "Tally",
    "Trajectory",
    "load_result",
    "load_rows",
]

_HOMES = {
    "gepa.adapter": ("RemoteAdapter",),
    "gepa.evaluation_results": ("Trajectory",),
    "errors": ("BadResponse", "ClientError", "ConnectionLost", "Interrupted", "Refused", "RowsError"),
    "gepa.hooks": ("Failure", "Failures"),
    "fleet": ("FleetEvent",),
    "journal.requests": ("Tally",),
    "gepa.litellm_model": ("LiteLLMModel",),
    "gepa.reflection_strategies": ("ConcurrentDatasets", "ConcurrentReflection", "ProgramReflection"),
    "analysis.gepa_result": ("load_result",),
    "gepa.rows": ("ServerRow", "Row", "RowLoader", "load_rows"),
    "transport.rpc_client": ("RpcClient",),
    "gepa.batch_evaluator": ("ExampleDone",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import lazily: gepa and aiohttp take a quarter of a second that `evolverpc --help` need not wait."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if (absent := _missing_packages("client")) is not None:
        raise ModuleNotFoundError(absent)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
