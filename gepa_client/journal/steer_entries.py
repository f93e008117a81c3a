"""Entries that users' requests to a run make: what was asked for, by whom and when."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

LONGEST_TEXT = 1_000_000
"""Characters of a text that is proposed by hand."""

LONGEST_HINT = 10_000
"""Characters of a hint, which every prompt of reflection has from then on."""

LONGEST_NAME = 1_000
"""Characters of the name of a component."""

LARGEST_LIMIT = 10**12
"""Metric calls or dollars."""

LONGEST_S = 1e9
"""The largest limit in seconds, 31 years: timers end at `threading.TIMEOUT_MAX`, about 9e9 s."""

SHOWN = 60
"""Characters of a hint in a description."""


def _encodable(text: Any) -> Any:
    if isinstance(text, str) and not text.isascii():  # pydantic's own message names no place
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"character {error.start} is half of a surrogate pair, which UTF-8 cannot encode"
            ) from None
    return text


Text = Annotated[str, Field(max_length=LONGEST_TEXT), BeforeValidator(_encodable)]
ComponentName = Annotated[str, Field(max_length=LONGEST_NAME), BeforeValidator(_encodable)]
HintText = Annotated[str, Field(min_length=1, max_length=LONGEST_HINT, pattern=r"\S"), BeforeValidator(_encodable)]
Index = Annotated[int, Field(ge=0, le=2**31)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}\z")]


class _Action(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Propose(_Action):
    """Evaluate these texts, by component, in place of the parent's. `parent`: index; None for the best candidate."""

    kind: Literal["propose"] = "propose"
    texts: Annotated[dict[ComponentName, Text], Field(min_length=1, max_length=100)]
    parent: Index | None = None


class Withdraw(_Action):
    """Do not evaluate a proposal by hand that was taken. `request`: its id."""

    kind: Literal["withdraw"] = "withdraw"
    request: Id


class Pin(_Action):
    """Make this candidate the parent of every proposal of reflection."""

    kind: Literal["pin"] = "pin"
    candidate: Index


class Unpin(_Action):
    """Select parents by the run's strategy again."""

    kind: Literal["unpin"] = "unpin"


class Drop(_Action):
    """Never make this candidate a parent again, nor the best one."""

    kind: Literal["drop"] = "drop"
    candidate: Index


class Hint(_Action):
    """Show this text in prompts of reflection: in all from now on, or in those of the next `proposals`."""

    kind: Literal["hint"] = "hint"
    text: HintText
    proposals: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class ClearHints(_Action):
    """Show no hint any more."""

    kind: Literal["clear_hints"] = "clear_hints"


class SetBudget(_Action):
    """Replace limits of the run; None leaves one as it is."""

    kind: Literal["budget"] = "budget"
    max_metric_calls: Annotated[int, Field(ge=1, le=LARGEST_LIMIT)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0, le=LARGEST_LIMIT)] | None = None
    max_seconds: Annotated[float, Field(gt=0, le=LONGEST_S)] | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are replaced, by the names of their settings."""
        return self.model_dump(exclude={"kind"}, exclude_none=True)


class Pause(_Action):
    """Stop the run after the examples in flight; it can be resumed."""

    kind: Literal["pause"] = "pause"


class Cancel(_Action):
    """End the run after the examples in flight."""

    kind: Literal["cancel"] = "cancel"


AnyAction = Propose | Withdraw | Pin | Unpin | Drop | Hint | ClearHints | SetBudget | Pause | Cancel
Action = Annotated[AnyAction, Field(discriminator="kind")]

_ACTION: TypeAdapter[AnyAction] = TypeAdapter(Action)


class SteerEntry(BaseModel):
    """A request that was taken. `author`: `user@host`; `created`: when it was made, by the clock of the author."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    id: Id
    action: Action
    author: str
    created: str


def action_of(value: Any) -> AnyAction:
    """Return the action of JSON. Raises `pydantic.ValidationError`."""
    return _ACTION.validate_python(value)


def described(action: AnyAction) -> str:
    """Return an action in words, such as `pin candidate 3`."""
    match action:
        case Propose():
            size = sum(map(len, action.texts.values()))
            parent = "the best candidate" if action.parent is None else f"candidate {action.parent}"
            return f"propose {', '.join(action.texts)} of {parent} by hand ({size:,} characters)"
        case Withdraw():
            return f"withdraw the proposal {action.request}"
        case Pin() | Drop():
            return f"{action.kind} candidate {action.candidate}"
        case Unpin():
            return "unpin"
        case Hint():
            text = " ".join(action.text.split())
            shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
            how_long = "" if action.proposals is None else f" for {action.proposals} proposals"
            return f"hint{how_long}: {shown}"
        case ClearHints():
            return "clear all hints"
        case SetBudget():
            return "set " + ", ".join(f"{name} to {value:,.12g}" for name, value in action.limits.items())
        case Pause() | Cancel():
            return action.kind
