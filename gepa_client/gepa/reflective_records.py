"""The customary records of reflection, for programs that make none of their own: of steps, or of whole examples.

They are those that `dspy.GEPA` makes of the same steps.
"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolverpc_common.exact_values import readable
from protocol import JsonValue
from protocol.code import ADDED_COMPONENTS, CODE_COMPONENTS, GIT_BRANCH, added_to, by_requested_component
from protocol.evaluation import PARSE_FAILURE
from protocol.reflection import MAX_IMAGE_BYTES

REFERENCE = "$image"
"""The one member of what stands for an image in a record: its id among the images."""

_UNPARSED = (
    "Couldn't parse the output as per the expected output format. The model's raw response was:\n```\n{}\n```\n\n"
)
_STRUCTURE = "Your output failed to parse. Follow this structure:\n{}"
_IMAGE = re.compile(r"data:(image/[a-z0-9.+-]{1,94});base64,([A-Za-z0-9+/]+={0,2})")
_MAX_BASE64 = (MAX_IMAGE_BYTES + 2) // 3 * 4

Record = dict[str, JsonValue]


def reference_to(content: dict[str, str], images: dict[str, dict[str, str]]) -> Record:
    """Return what stands for an image in a record, and add its content, `{media_type, base64}`, to the images."""
    digest = hashlib.sha256((content["media_type"] + content["base64"]).encode()).hexdigest()[:32]
    images[digest] = content
    return {REFERENCE: digest}


def customary_records(
    examples: Sequence[tuple[JsonValue, Mapping[str, Any]]],
    components: Sequence[str],
    candidate: Mapping[str, str],
    *,
    seed: int,
) -> dict[str, Any]:
    """Return `dataset`, the records by component, and `images`, if there are any, by the ids that records give them.

    For an example with steps of components each component has a record of one of its own, the first that failed or
    else one that is drawn; for another example all have one of it as a whole, with the feedback on the component. The
    records of the component `git_branch` are those of all components, each once. `examples`: the data of each, None if
    it is not known, and its result with the trajectory. `seed`: of the draws.
    """
    wanted = [name for name in components if name not in CODE_COMPONENTS]
    if GIT_BRANCH in components:
        wanted = [name for name in candidate if name not in CODE_COMPONENTS]
    if {GIT_BRANCH, ADDED_COMPONENTS} & {*components}:
        wanted += added_to(dict(candidate))
    images: dict[str, dict[str, str]] = {}
    own = [[step for step in steps_of(result) if step.get("component")] for _, result in examples]
    drawn = random.Random(seed)  # noqa: S311  # drawn as dspy.GEPA draws
    dataset: dict[str, list[Record]] = {}
    for component in dict.fromkeys(wanted):
        records = dataset[component] = []
        for (data, result), steps in zip(examples, own, strict=True):
            found = [step for step in steps if step["component"] == component]
            if found:
                failed = [step for step in found if step.get("error")]
                step = failed[0] if failed else drawn.choice(found)
                records.append(_of_step(step, _feedback(result, component), images))
            elif not steps:
                records.append(_of_example(data, result, component))
    made = by_requested_component(dataset, components, dict(candidate))
    return {"dataset": made, "images": images} if images else {"dataset": made}


def steps_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a result's trajectory, each before those within it; empty without any."""
    trajectory = result.get("trajectory")
    return [*_flattened(trajectory.get("steps"))] if isinstance(trajectory, dict) else []


def _flattened(steps: Any) -> Iterator[dict[str, Any]]:
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict):  # a trajectory of a program's own may hold anything
            yield step
            yield from _flattened(step.get("steps"))


def _of_step(step: dict[str, Any], feedback: str, images: dict[str, dict[str, str]]) -> Record:
    error = step["error"] if isinstance(step.get("error"), dict) else {}
    outputs: Any = "" if step.get("outputs") is None else _with_references(step["outputs"], images)
    if error.get("type") == PARSE_FAILURE:
        outputs = _UNPARSED.format(step.get("raw") or "")
        expected = step.get("expected")
        feedback = _STRUCTURE.format(expected) if expected else f"Your output failed to parse: {error.get('message')}"
    elif error:
        feedback = f"This step failed: {error.get('type')}: {error.get('message')}\n{feedback}"
    inputs = _with_references({} if step.get("inputs") is None else step["inputs"], images)
    return {"Inputs": _with_context(inputs), "Generated Outputs": outputs, "Feedback": feedback}


def _of_example(data: JsonValue, result: Mapping[str, Any], component: str) -> Record:
    output, trajectory = result.get("output"), result.get("trajectory")
    if isinstance(trajectory, dict) and isinstance(trajectory.get("steps"), list):
        trajectory = trajectory.get("trace")  # the program's own entries
    record = {
        "Inputs": readable(data),
        "Generated Outputs": "" if output is None else readable(output),
        "Feedback": _feedback(result, component),
    }
    return record if trajectory is None else {**record, "Trace": trajectory}


def _feedback(result: Mapping[str, Any], component: str) -> str:
    """Return that on the component, else that on the example, else its failure or its score."""
    own = (result.get("component_feedback") or {}).get(component) or result.get("feedback")
    if own:
        return str(own)
    error = result.get("error")
    if error:
        text = f"The program failed: {error['type']}: {error['message']}"
        return f"{text}\n{error['traceback']}" if error.get("traceback") else text
    score = result.get("score")
    return f"Score: {None if score is None else float(score)}"


def _with_context(inputs: Any) -> Any:
    """Return the inputs with their first chat history as text, at the beginning."""
    if not isinstance(inputs, dict):
        return inputs
    history = next((name for name, value in inputs.items() if _is_history(value)), None)
    if history is None:
        return inputs
    messages = [json.dumps(message, ensure_ascii=False, separators=(",", ":")) for message in inputs[history]]
    lines = "".join(f"  {number}: {message}\n" for number, message in enumerate(messages))
    others = {name: value for name, value in inputs.items() if name != history}
    return {"Context": f"```json\n{lines}```", **others}


def _is_history(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and isinstance(each.get("role"), str) and "content" in each for each in value)
    )


def _with_references(value: Any, images: dict[str, dict[str, str]]) -> Any:
    """Return the value with a reference in place of each image given as the text of a data URL."""
    if isinstance(value, dict):
        return {name: _with_references(part, images) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_references(part, images) for part in value]
    inline = _IMAGE.fullmatch(value) if isinstance(value, str) and value.startswith("data:image/") else None
    if inline is None or len(inline[2]) % 4:
        return value
    media_type, text = inline.groups()
    if len(text) > _MAX_BASE64:
        return {"type": media_type, "repr": f"an image of {len(text)} characters in base64"}
    return reference_to({"media_type": media_type, "base64": text}, images)
