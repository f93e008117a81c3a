"""What whoever started the optimizer's process tells it while it runs: a line of JSON each."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

Count = Annotated[int, Field(ge=0, le=2**53)]
Amount = Annotated[FiniteFloat, Field(ge=0, le=1e15)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ModelCallMessage(_Message):
    """A program called a model through the gateway. What nobody said is None.

    `sandbox`: its name. `status`: HTTP's, None where no answer came. `seconds`: until its end.
    """

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
        """`ok`, `error` for an answer that is one, `lost` where none came."""
        if not self.status:
            return "lost"
        return "ok" if 200 <= self.status < 300 else "error"

    @property
    def usage(self) -> dict[str, int | float] | None:
        """As the contract's `Usage`; None where nothing was said."""
        said = {"cost_usd": self.cost_usd, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return {name: value for name, value in said.items() if value is not None} or None

    @property
    def is_free(self) -> bool:
        """It failed, and nobody says that it cost anything."""
        return self.outcome != "ok" and self.usage is None


class RefusalMessage(_Message):
    """The gateway did not let something through: `what` was asked for in `sandbox`, so many `times`, and why not."""

    sandbox: str
    what: str
    reason: str
    times: Annotated[int, Field(ge=1, le=2**53)] = 1


class StopMessage(_Message):
    """Come to an end; what is in flight is finished. `reason`: None where somebody did it by hand."""

    reason: str | None = None


class CapMessage(_Message):
    """The gateway lets nothing more through, as the money is spent: what still needs a model never ends."""

    reason: str


class _TaggedMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    model_call: ModelCallMessage | None = None
    refusal: RefusalMessage | None = None
    stop: StopMessage | None = None
    cap: CapMessage | None = None


ControlMessage = ModelCallMessage | RefusalMessage | StopMessage | CapMessage

_ADAPTER = TypeAdapter(_TaggedMessage)


def parse_message(text: str) -> ControlMessage:
    """What a line says: it is an object with one key, which says what it is.

    Raises:
        ValueError: it is none of these.
    """
    try:
        told = _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the line itself'}") from None
    found = [each for each in (told.model_call, told.refusal, told.stop, told.cap) if each is not None]
    if len(found) != 1:
        raise ValueError("a line says one thing")
    return found[0]


class DriverJob(BaseModel):
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
