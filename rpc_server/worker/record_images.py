"""Reflective records with images: as JSON with a reference in place of each image, and with the images put back."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import re
import sys
from typing import Any

from .json_values import NotJsonError, readable_text, to_text

REFERENCE = "$image"
MAX_BYTES = 5 * 2**20
_DEEPEST = 200
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)


def dataset_members(dataset: Any) -> str:
    """Return `dataset`, and `images` if there are any, as members of a result.

    `dataset` has `{"$image": id}` in place of each `gepa.Image`, and `images` these by id, each once.

    Raises:
        NotJsonError: an image cannot be read, exceeds `MAX_BYTES` or is a URL; the message names its place.
    """
    images: dict[str, dict[str, str]] = {}
    module = sys.modules.get("gepa.image")  # a program that has not imported it has made no image
    if module is None:
        return '"dataset":%s' % readable_text(dataset, "dataset")
    kind = module.Image

    def replaced(value: Any, path: str, depth: int) -> Any:
        if isinstance(value, kind):
            content = _image_content(value, path)
            digest = hashlib.sha256((content["media_type"] + content["base64"]).encode()).hexdigest()[:32]
            images[digest] = content
            return {REFERENCE: digest}
        if depth > _DEEPEST:
            return value  # the encoder reports it
        if isinstance(value, dict):
            return {key: replaced(part, "%s.%s" % (path, key), depth + 1) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [replaced(part, "%s[%d]" % (path, at), depth + 1) for at, part in enumerate(value)]
        return value

    made = replaced(dataset, "dataset", 0)
    text = '"dataset":%s' % readable_text(made if images else dataset, "dataset")
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
    try:
        url = image.to_openai_content_part()["image_url"]["url"]
    except OSError as error:
        raise NotJsonError("%s is an image that cannot be read: %s" % (path, error)) from None
    inline = _DATA_URL.fullmatch(url)
    if inline is None:
        raise NotJsonError(
            "%s is an image at a URL, which the optimizer does not fetch, or of another media type than image/...; "
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
    return {"media_type": media_type, "base64": text}
