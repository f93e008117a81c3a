"""Reflective records: the default ones, of examples or of steps, and images in records as references."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import random
import re
import sys
from typing import Any

from .encode import NotJsonError, readable_text, to_text
from .steps import PARSE_FAILURE, flattened

REFERENCE = "$image"
MAX_BYTES = 5 * 2**20
_DEEPEST = 200
_UNPARSED = (
    "Couldn't parse the output as per the expected output format. The model's raw response was:\n```\n%s\n```\n\n"
)
_STRUCTURE = "Your output failed to parse. Follow this structure:\n%s"
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)
_BASE64_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/]+={0,2})")
_MAX_BASE64 = (MAX_BYTES + 2) // 3 * 4
_MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
}


def take_out(dataset: Any, name: str) -> tuple[Any, dict[str, dict[str, str]]]:
    """Replace each `gepa.Image` by `{"$image": id}`; return the records and the images by id, each once.

    Raises:
        NotJsonError: an image cannot be read, exceeds `MAX_BYTES` or is a URL; the message names its place.
    """
    images: dict[str, dict[str, str]] = {}
    module = sys.modules.get("gepa.image")  # a program that has not imported it has made no image
    if module is None:
        return dataset, images
    kind = module.Image

    def replaced(value: Any, path: str, depth: int) -> Any:
        if isinstance(value, kind):
            content = _image_content(value, path)
            return _reference(content["media_type"], content["base64"], images)
        if depth > _DEEPEST:
            return value  # the encoder reports it
        if isinstance(value, dict):
            return {key: replaced(part, "%s.%s" % (path, key), depth + 1) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [replaced(part, "%s[%d]" % (path, at), depth + 1) for at, part in enumerate(value)]
        return value

    made = replaced(dataset, name, 0)
    return (made, images) if images else (dataset, images)


def _reference(media_type: str, text: str, images: dict[str, dict[str, str]]) -> dict[str, str]:
    digest = hashlib.sha256((media_type + text).encode()).hexdigest()[:32]
    images[digest] = {"media_type": media_type, "base64": text}
    return {REFERENCE: digest}


def members(dataset: Any, images: dict[str, dict[str, str]]) -> str:
    """Return `dataset`, and `images` if there are any, as members of a result."""
    text = '"dataset":%s' % readable_text(dataset, "dataset")
    return '%s,"images":%s' % (text, to_text(images, "images")) if images else text


def put_back(value: Any, images: dict[str, dict[str, str]]) -> Any:
    """Replace each known `{"$image": id}` by a `gepa.Image`."""
    if not images:
        return value
    if isinstance(value, dict):
        content = images.get(value[REFERENCE]) if set(value) == {REFERENCE} else None
        if content is not None:
            image = importlib.import_module("gepa.image").Image
            return image(base64_data=content["base64"], media_type=content["media_type"])
        return {key: put_back(part, images) for key, part in value.items()}
    if isinstance(value, list):
        return [put_back(part, images) for part in value]
    return value


def _image_content(image: Any, path: str) -> dict[str, str]:
    media_type = image.media_type
    if image.path is not None:
        try:
            with open(image.path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise NotJsonError("%s is an image that cannot be read: %s" % (path, error)) from None
        media_type = media_type or _MEDIA_TYPES.get(str(image.path).rpartition(".")[2].lower(), "image/png")
    else:
        text = image.base64_data
        if text is None:
            inline = _DATA_URL.fullmatch(image.url)
            if inline is None:
                raise NotJsonError(
                    "%s is an image at a URL, which the optimizer does not fetch; "
                    "give the image itself, as `path` or `base64_data`" % path
                )
            media_type, text = inline.groups()
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise NotJsonError("%s is an image that is not base64: %s" % (path, error)) from None
    if len(data) > MAX_BYTES:
        raise NotJsonError("%s is an image of more than %d bytes; make it smaller" % (path, MAX_BYTES))
    if not data:
        raise NotJsonError("%s is an empty image" % path)
    return {"media_type": media_type, "base64": base64.b64encode(data).decode()}


def default_dataset(
    batch: list[dict[str, Any]], results: list[dict[str, Any]], components: list[str], *, traced: bool, seed: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, str]]]:
    """Return the records, and the images in them by id.

    For an example with steps of components each component has a record of one of its own, else all have one of the
    whole example, with the feedback on the component.
    `traced`: the program records its trajectories itself. `seed`: of the choice between several steps.
    """
    steps = [_steps(result) for result in results]
    rng = random.Random(seed)  # noqa: S311  # drawn as dspy.GEPA draws
    images: dict[str, dict[str, str]] = {}
    dataset: dict[str, list[dict[str, Any]]] = {}
    for component in components:
        records = dataset[component] = []
        for example, result, own in zip(batch, results, steps):  # noqa: B905  # Python 3.8 has no `strict`
            found = [step for step in own if step.get("component") == component]
            if found:
                failed = [step for step in found if step.get("error")]
                records.append(_step_record(failed[0] if failed else rng.choice(found), component, result, images))
            elif not own:
                records.append(_record(example.get("data"), component, result, traced=traced))
    return dataset, images


def _steps(result: dict[str, Any]) -> list[dict[str, Any]]:
    trajectory = result.get("trajectory")
    steps = trajectory.get("steps") if isinstance(trajectory, dict) else None
    return [step for step in flattened(steps) if step.get("component")] if isinstance(steps, list) else []


def _step_record(
    step: dict[str, Any], component: str, result: dict[str, Any], images: dict[str, dict[str, str]]
) -> dict[str, Any]:
    error = step.get("error") or {}
    feedback = _feedback(result, component)
    outputs: Any
    if error.get("type") == PARSE_FAILURE:
        outputs = _UNPARSED % (step.get("raw") or "")
        expected = step.get("expected")
        feedback = _STRUCTURE % expected if expected else "Your output failed to parse: %s" % error.get("message")
    else:
        outputs = "" if step.get("outputs") is None else _with_references(step["outputs"], images)
        if error:
            feedback = "This step failed: %s: %s\n%s" % (error.get("type"), error.get("message"), feedback)
    inputs = _with_references({} if step.get("inputs") is None else step["inputs"], images)
    return {"Inputs": _with_context(inputs), "Generated Outputs": outputs, "Feedback": feedback}


def _with_context(inputs: Any) -> Any:
    """Return the inputs with their first chat history rendered, at the beginning."""
    history = (
        next((name for name, value in inputs.items() if _is_history(value)), None) if isinstance(inputs, dict) else None
    )
    if history is None:
        return inputs
    lines = [
        "  %d: %s\n" % (number, readable_text(message, "message")) for number, message in enumerate(inputs[history])
    ]
    others = {name: value for name, value in inputs.items() if name != history}
    return {"Context": "```json\n%s```" % "".join(lines), **others}


def _is_history(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message
            for message in value
        )
    )


def _with_references(value: Any, images: dict[str, dict[str, str]]) -> Any:
    """Return the value with each data URL of an image replaced by a reference to it."""
    if isinstance(value, str):
        inline = _BASE64_URL.fullmatch(value) if value.startswith("data:image/") else None
        if inline is None or len(inline.group(2)) % 4:
            return value
        media_type, text = inline.groups()
        if len(text) > _MAX_BASE64:
            return {"type": media_type, "repr": "an image of %d characters in base64" % len(text)}
        return _reference(media_type, text, images)
    if isinstance(value, dict):
        return {name: _with_references(part, images) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_references(part, images) for part in value]
    return value


def _record(data: Any, component: str, result: dict[str, Any], *, traced: bool) -> dict[str, Any]:
    output = result.get("output")
    record = {
        "Inputs": data,
        "Generated Outputs": "" if output is None else output,
        "Feedback": _feedback(result, component),
    }
    if traced and result.get("trajectory") is not None:
        record["Trace"] = result["trajectory"]
    return record


def _feedback(result: dict[str, Any], component: str) -> str:
    own = (result.get("component_feedback") or {}).get(component)
    if own:
        return str(own)
    if result.get("feedback"):
        return str(result["feedback"])
    error = result.get("error")
    if error:
        text = "The program failed: %s: %s" % (error.get("type"), error.get("message"))
        return text + "\n" + error["traceback"] if error.get("traceback") else text
    return "Score: %s" % result.get("score")
