"""Which checks apply to an endpoint, by what it says of itself; and why the others do not."""

from gepa_client.conformance.cases import Check
from gepa_client.conformance.matching import ABSENT, mismatches, shown
from gepa_client.conformance.template import lookup
from protocol import JsonValue


def reason_to_skip(check: Check, discovery: JsonValue, *, has_token: bool) -> str | None:
    """Why the check does not apply, or None where it does."""
    offered = set(discovery.get("capabilities", ()))
    absent = [name for name in check.requires if name not in offered]
    if absent:
        return f"not offered: {', '.join(absent)}"
    present = [name for name in check.lacks if name in offered]
    if present:
        return f"offered: {', '.join(present)}"
    served = discovery["program"]["name"]
    if check.program is not None and served != check.program:
        return f"needs the {check.program} program; this endpoint serves {served}"
    if check.needs_token and not has_token:
        return "needs a token to vary, and none was given"
    for path, matcher in check.when.items():
        value = lookup(discovery, path)
        if mismatches(value, matcher):
            return f"{path} is {'not stated' if value is ABSENT else shown(value)}"
    return None
