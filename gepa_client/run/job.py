"""What the optimizer's process is told to do: drive a run from where it stopped, or tell a recorded one again."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict


class Job(BaseModel):
    """`owner`: the claim it takes the run with. `config`: the settings, secrets included; it travels over a pipe.

    `output`: the folder for results; None writes none. `replays`: tell the recorded run again, without server or model,
    and only up to `until` where that is given. `seen_beat`: of the
    run's claim when this command read it. `wish`: what had been asked of whoever drove the run before this command
    began, which is over. `gateway`: whoever starts this has one, and tells of the models that programs call:
    what those say of their costs is not counted then.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    run_id: str
    owner: str
    config: dict[str, Any]
    output: Path | None
    replays: bool = False
    until: int | None = None
    wish: str | None = None
    seen_beat: int = 0
    gateway: bool = False
