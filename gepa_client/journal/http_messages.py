"""The wire form of a store's methods over HTTP: JSON of their arguments and results, by the types of `Store`.

`POST BASE/job/RUN/journal/METHOD` takes an object of the method's arguments without the run's id. It answers
`{"result": ...}`. Bytes are JSON in UTF-8, and are sent as text. An error is an RFC 9457 problem whose `code` is one of
`ERRORS`. An exported run has its rows in the same form.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, TypeAdapter, create_model

from gepa_client.errors import (
    ClaimLost,
    JournalError,
    NoSuchRun,
    NumberTaken,
    RequestExists,
    RunExists,
    StoreDamaged,
    StoreUnavailable,
    StoreVersionDiffers,
)
from gepa_client.journal.entries import Attempt, Entry, Row
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import decoding

LARGEST_REQUEST = 256 << 20
"""Bytes of a request: an answer of an endpoint, the largest value of a run, has at most 64 MiB."""

ERRORS: dict[str, type[Exception]] = {
    "claim-lost": ClaimLost,
    "damaged": StoreDamaged,
    "invalid": ValueError,
    "journal": JournalError,
    "no-such-run": NoSuchRun,
    "number-taken": NumberTaken,
    "request-exists": RequestExists,
    "run-exists": RunExists,
    "version-differs": StoreVersionDiffers,
    "unavailable": StoreUnavailable,
}

IF_ANY = ("omitted", "failed", "candidate", "row")
"""Members of entries and attempts that most of them have nothing in."""

_OWN_MEMBERS = {"answer": "entry", "attempt": "attempt"}
_LOCAL = {"runs", "attempts", "all_attempts", "close"}
"""Methods without one on the wire."""


def _type_of_row(value: Any) -> str | None:
    """Return the type of a row, by a member that no other type has."""
    members = value if isinstance(value, dict) else {}
    return next((type_ for member, type_ in _OWN_MEMBERS.items() if member in members), None)


WireRow = Annotated[Annotated[Entry, Tag("entry")] | Annotated[Attempt, Tag("attempt")], Discriminator(_type_of_row)]

_WIRE_TYPES: dict[Any, Any] = {Sequence[Row]: list[WireRow], Iterable[Row]: list[WireRow]}


class Arguments(BaseModel):
    """The arguments of a method; each method has a subclass of its own."""

    model_config = ConfigDict(extra="forbid")

    def named(self) -> dict[str, Any]:
        """Return those that were given, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class StoreMethod:
    """A method of `Store` on the wire. `arguments`: their type; `result`: that of the result."""

    def __init__(self, name: str) -> None:
        function: Callable[..., Any] = getattr(Store, name)
        hints = get_type_hints(function)
        self.name = name
        self.signature = inspect.signature(function)
        self.takes_run = name == "create"
        given = list(self.signature.parameters.values())[1 if self.takes_run else 2 :]
        members: dict[str, Any] = {
            each.name: (
                _WIRE_TYPES.get(hints[each.name], hints[each.name]),
                ... if each.default is inspect.Parameter.empty else each.default,
            )
            for each in given
        }
        self.arguments: type[Arguments] = create_model(f"{name}Arguments", __base__=Arguments, **members)
        self.result: TypeAdapter[Any] = TypeAdapter(_WIRE_TYPES.get(hints["return"], hints["return"]))


METHODS: Mapping[str, StoreMethod] = {
    name: StoreMethod(name)
    for name, member in vars(Store).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in _LOCAL
}


def dumped(value: Any) -> bytes:
    """Return a value of dataclasses and bytes as JSON in ASCII, which carries lone surrogates too."""
    return json.dumps(value, default=plain, separators=(",", ":")).encode()


def loaded(data: bytes) -> Any:
    """Return the value of JSON. Raises `ValueError`, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def plain(value: Any) -> Any:
    """Return a dataclass, bytes or an iterable as JSON; an entry or an attempt without empty members of `IF_ANY`.

    Raises `StoreDamaged` for bytes that are no text.
    """
    if isinstance(value, bytes):
        with decoding("an answer"):
            return value.decode()
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        optional = IF_ANY if isinstance(value, Entry | Attempt) else ()
        return {name: member for name, member in named.items() if member or name not in optional}
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no wire form")
