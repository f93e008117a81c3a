"""What a program gave to be kept for it (capability `adapter_state`), and which of its instances needs no telling."""

from collections.abc import Mapping
from typing import Any

from protocol import JsonValue

STATE_KEY = "adapter_state"
"""The name of the capability, of the member in params and results, and of our entry in GEPA's checkpoint."""


class AdapterState:
    """The last known state, None where there is none, and the instance that made it."""

    def __init__(self) -> None:
        self._value: JsonValue = None
        self._made_by: str | None = None  # None where it came from a checkpoint

    def keep(self, value: JsonValue, instance: str | None) -> None:
        """This instance gave it with its answer."""
        self._value, self._made_by = value, instance

    def restore(self, checkpoint: Mapping[str, JsonValue]) -> None:
        """Take up what `checkpoint` once returned; no instance knows it yet."""
        self.keep(checkpoint.get(STATE_KEY), None)

    def checkpoint(self) -> dict[str, JsonValue]:
        """For GEPA's checkpoint; empty where there is none."""
        return {} if self._value is None else {STATE_KEY: self._value}

    def params_for(self, instance: str | None) -> dict[str, Any]:
        """What a request to this instance must carry: nothing where the instance made the state itself."""
        return {} if instance == self._made_by else self.checkpoint()
