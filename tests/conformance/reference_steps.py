"""The reference server's steps: those of an example as it runs."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

Bad = Callable[[str], bool]


async def run_steps(bad: Bad, wanted: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
    """Run the steps that an example asks for; each is in `recorded` from its start."""
    for one in wanted:
        name = {"component": one["component"]} if "component" in one else {"name": one["name"]}
        if bad("tools_are_components"):
            name = {"component": one.get("component") or one["name"]}
        step: dict[str, Any] = {**name, "inputs": one.get("inputs", {}), "outputs": None}
        if not (bad("caps_steps") and len(recorded) >= 100):
            recorded.append(step)
        within = one.get("steps", [])
        inner: list[dict[str, Any]] = recorded if bad("flattens_steps") else step.setdefault("steps", [])
        await asyncio.sleep(0)
        step["seconds"] = -1.0 if bad("steps_take_less_than_nothing") else 0.01
        failure = one.get("parse_failure")
        try:
            await run_steps(bad, within, inner)
            if "raise" in one:
                raise ValueError(one["raise"])
        except ValueError as error:
            step["error"] = {"type": type(error).__name__, "message": str(error)}
            raise
        if failure is None:
            step["outputs"] = json.dumps(one.get("outputs")) if bad("outputs_as_text") else one.get("outputs")
        else:
            kind = "ValueError" if bad("parse_failures_are_errors") else "parse_failure"
            step["error"] = {"type": kind, "message": failure["message"]}
            step |= {"raw": failure["raw"], "expected": failure["expected"]}
