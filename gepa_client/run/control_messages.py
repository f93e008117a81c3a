"""Control messages: lines of JSON from the supervisor to the driver process, the first of them its job."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter

from gepa_client.journal.run_events import CallRefused

Count = Annotated[int, Field(ge=0, le=2**53)]
Amount = Annotated[FiniteFloat, Field(ge=0, le=1e15)]


class _ControlMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ModelCallMessage(_ControlMessage):
    """A program called a model through the gateway; unknown values are None.

    `sandbox`: its name. `status`: of HTTP, None without a response. `seconds`: from start to end.
    """

    event: Literal["model_call"] = "model_call"
    sandbox: str
    provider: str
    model: str | None = None
    status: int | None = None
    seconds: Amount = 0.0
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cost_usd: Amount | None = None

    @property
    def outcome(self) -> str:
        """`ok`, `error` for an error response, `lost` without a response."""
        if not self.status:
            return "lost"
        return "ok" if 200 <= self.status < 300 else "error"

    @property
    def usage(self) -> dict[str, int | float] | None:
        """The contract's `Usage`; None if the provider reported none."""
        reported = {"cost_usd": self.cost_usd, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return {name: value for name, value in reported.items() if value is not None} or None

    @property
    def is_free(self) -> bool:
        """Whether it failed and no cost was reported."""
        return self.outcome != "ok" and self.usage is None


class StopMessage(_ControlMessage):
    """Stop the run; examples in flight are completed.

    `reason`: what of the infrastructure is lost; None for a stop by hand.
    """

    event: Literal["stop"] = "stop"
    reason: str | None = None


class CapMessage(_ControlMessage):
    """The spend cap is reached: the gateway holds all further calls, so examples that need a model never end."""

    event: Literal["cap"] = "cap"
    reason: str


GatewayMessage = ModelCallMessage | CallRefused
"""What a gateway reports; of a refusal, the event that a run has of it."""

ControlMessage = GatewayMessage | StopMessage | CapMessage

CONTROL_MESSAGES: TypeAdapter[ControlMessage] = TypeAdapter(
    Annotated[ControlMessage, Field(discriminator="event")], config=ConfigDict(defer_build=True)
)


class DriverJob(BaseModel):
    """What the driver process does: drive a run from where it stopped, or replay a recorded one.

    `owner`: the owner of the lease it takes. `config`: the settings, secrets included; they travel over a pipe.
    `output`: the folder for results; None writes none. `replays`: replay without server or model, up to `until` if
    given. `seen_requests`: how many requests of users there were when this command read the run; those of them that
    stop it are over. `gateway`: the supervisor reports model calls of programs, so their own usage is not counted.
    `if_blocked`: written to the descriptor `terminal` if the program stops answering and is in the supervisor's
    process, which can then display nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str
    run_id: str
    owner: str
    config: dict[str, Any]
    output: Path | None
    replays: bool = False
    until: int | None = None
    seen_requests: int = 0
    gateway: bool = False
    if_blocked: str | None = None
    terminal: int | None = None
