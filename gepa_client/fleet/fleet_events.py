"""What a fleet tells whoever watches it."""

from dataclasses import dataclass
from typing import Literal

FleetEventKind = Literal["joined", "refused", "resting", "back", "left", "waiting", "warning"]


@dataclass(frozen=True)
class FleetEvent:
    """A change of state, told once, on the fleet's event loop.

    `kind`: `joined` the fleet; `left` it, when its last call has ended; `refused` because it disagrees with the leader;
    `resting` takes nothing new until it is `back`; `waiting` means that no endpoint is left; `warning` is anything else
    worth knowing. `url`: the endpoint's, None where the whole fleet is meant. `detail`: why, in words. `seconds`: how
    long it rests at first, how long it was away, or how long the fleet waits before the run pauses.
    """

    kind: FleetEventKind
    url: str | None = None
    detail: str = ""
    seconds: float | None = None
