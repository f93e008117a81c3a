"""The adapter as GEPA sees it where code evolves: added components are components, merged code is merged in time."""

from collections.abc import Mapping, Sequence
from typing import Any

from gepa_client.evolution.merging import CodeMerge
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.evaluation_batches import Batch
from protocol import Candidate, JsonValue
from protocol.code import ADDED_COMPONENTS, added_to


class EvolvingAdapter:
    """A `RemoteAdapter` for `gepa.optimize`; everything but what is said here is that one's own."""

    propose_new_texts = None  # the engine reads it unconditionally

    def __init__(self, adapter: RemoteAdapter, merge: CodeMerge) -> None:
        self._adapter = adapter
        self._merge = merge

    def evaluate(self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False) -> Batch:
        """As the adapter's; a merged candidate has its code merged first."""
        self._merge.complete(candidate)
        return self._adapter.evaluate(batch, candidate, capture_traces)

    def batch_evaluate(
        self, items: Sequence[tuple[Candidate, Sequence[Any]]], capture_traces: bool | None = None
    ) -> list[Batch]:
        """As the adapter's."""
        return self._adapter.batch_evaluate(items, capture_traces)

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: Batch, components_to_update: Sequence[str]
    ) -> dict[str, list[dict[str, JsonValue]]]:
        """As the adapter's; for `added_components` there are records of each added component that is used."""
        unused = self._adapter.commits.unused(candidate)
        names = [name for name in components_to_update if name != ADDED_COMPONENTS]
        if ADDED_COMPONENTS in components_to_update:
            names += [name for name in added_to(candidate) if name not in unused]
        return self._adapter.make_reflective_dataset(candidate, eval_batch, names)

    def get_adapter_state(self) -> dict[str, JsonValue]:
        """As the adapter's."""
        return self._adapter.get_adapter_state()

    def set_adapter_state(self, state: Mapping[str, JsonValue]) -> None:
        """As the adapter's."""
        self._adapter.set_adapter_state(state)
