"""What `gepa-client mutate` is asked for: read from flags and files, and refused where it cannot be meant."""

import json
from dataclasses import dataclass
from pathlib import Path

from gepa_client.cli.store_access import refuse
from gepa_client.transport.error_format import unreadable
from protocol import Candidate, JsonValue
from protocol.code import CODE_COMPONENTS, GIT_BRANCH, added_to


@dataclass(frozen=True)
class Wish:
    """What was asked for, read and checked. `candidate`: None for the server's seed. `output`: for the new one."""

    mutation: dict[str, JsonValue]
    candidate: Candidate | None
    examples: str | None
    limit: int
    timeout_s: float
    output: Path | None

    @property
    def kind(self) -> str:
        """The mutation's, as the contract names it."""
        return str(self.mutation["kind"])


def mutation_of(
    request: str | None, location: str | None, patch: Path | None, texts: Path | None, merge: Path | None
) -> dict[str, JsonValue]:
    """The mutation that was typed, exactly one."""
    ways = {"a change request": request, "--patch": patch, "--texts": texts, "--merge": merge}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        refuse(f"say one change: {', '.join(ways)}" + (f"; {' and '.join(given)} were given" if given else ""))
    if location is not None and request is None:
        refuse("--location is for a change request")
    if patch is not None:
        return {"kind": "patch", "diff": _read(patch)}
    if texts is not None:
        return {"kind": "texts", "texts": _texts(_object(texts), texts)}
    if merge is not None:
        other = _object(merge)
        if GIT_BRANCH not in other:
            refuse(f"{merge} names no {GIT_BRANCH}: give a whole candidate (as --output writes)")
        return {"kind": "merge", "other": other}
    if not request:
        refuse("the change request is empty")
    asked = {"kind": "change_request", "request": request}
    return asked | ({"location": location} if location is not None else {})


def candidate_of(candidate: Path | None, texts: Path | None) -> Candidate | None:
    """The candidate of a file; texts that came with a commit belong to it."""
    if candidate is not None:
        return _object(candidate)
    if texts is not None and GIT_BRANCH in (found := _object(texts)):
        return found
    return None


def _texts(given: Candidate, path: Path) -> dict[str, JsonValue]:
    """The texts of a file, those in it that code mutations added included."""
    try:
        added = added_to(given)
    except ValueError as error:
        refuse(f"{path}: {error}")
    found: dict[str, JsonValue] = {**added, **{name: given[name] for name in given if name not in CODE_COMPONENTS}}
    if not found:
        refuse(f"{path}: holds no texts")
    return found


def _object(path: Path) -> dict[str, str]:
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        refuse(f"{path}: not JSON: {error}")
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        refuse(f"{path}: not a JSON object of texts")
    return value


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")  # line ends stay as they are: a diff of a file with CRLF has them
    except (OSError, UnicodeDecodeError) as error:
        refuse(unreadable(path, error))
