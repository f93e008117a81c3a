"""What a mutation's commit says of itself: what for, what was done, and which run asked."""

import re
from collections.abc import Sequence

from protocol.code import branch_of
from protocol.mutation import ApplyMutationParams, ChangeRequest, MutationName, Patch, Texts

OF_CHANGE_REQUESTS = "^Mutation: change_request$"
"""Matches the message of a commit that a change request made; its subject is that request's first line."""

_MAX_SUBJECT = 72
_MAX_BODY = 20_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def commit_message(request: ApplyMutationParams, name: MutationName, summary: str, files: Sequence[str]) -> str:
    """Subject, body and trailers; the same for the same words, so that the commit's id is too."""
    mutation = request.mutation
    if isinstance(mutation, ChangeRequest):
        subject = _subject(mutation.request)
        body = "" if subject == mutation.request.strip() else mutation.request
    elif isinstance(mutation, Patch):
        subject, body = _cut(f"Apply a patch to {_listed(files)}"), ""
    elif isinstance(mutation, Texts):
        subject, body = _cut(f"Write the texts of {_listed(sorted(mutation.texts))}"), ""
    else:
        subject, body = _cut(f"Merge {branch_of(mutation.other)}"), ""
    trailers = f"Mutation: {mutation.kind}\nRun: {name.run}/{name.number}"
    told = [_plain(text)[:_MAX_BODY].strip() for text in (body, summary)]
    parts = [subject, *told, trailers]
    return "\n\n".join(part for part in parts if part) + "\n"


def _subject(request: str) -> str:
    return _cut(next((line for line in map(_line, request.splitlines()) if line), "Change the program"))


def _listed(names: Sequence[str]) -> str:
    first, *others = names
    return _line(first) + (f" and {len(others)} more" if others else "")


def _line(text: str) -> str:
    return " ".join(_plain(text).split())


def _plain(text: str) -> str:
    """What git takes for a message."""
    return _CONTROL.sub("", text.encode("utf-8", "replace").decode())


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SUBJECT else text[: _MAX_SUBJECT - 3] + "..."
