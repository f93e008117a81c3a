"""Images in reflective records: `gepa.Image` objects here, references and a table of contents on the wire."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from gepa.image import Image

REFERENCE = "$image"

Images = Mapping[str, Mapping[str, str]]
"""`ImageContent` as JSON, by the id that records name it by."""


def with_images(value: Any, images: Images) -> Any:
    """Return records with an `Image` in place of each `{"$image": id}` that `images` holds."""
    if not images:
        return value
    if isinstance(value, dict):
        known = images.get(value[REFERENCE]) if value.keys() == {REFERENCE} else None
        if known is not None:
            return Image(base64_data=known["base64"], media_type=known["media_type"])
        return {key: with_images(part, images) for key, part in value.items()}
    if isinstance(value, list):
        return [with_images(part, images) for part in value]
    return value


def without_images(value: Any) -> tuple[Any, dict[str, dict[str, str]]]:
    """Return records as JSON, with `{"$image": id}` in place of each `Image`; and the images by id."""
    images: dict[str, dict[str, str]] = {}

    def replaced(part: Any) -> Any:
        if isinstance(part, Image):
            content = _content(part)
            digest = hashlib.sha256((content["media_type"] + content["base64"]).encode()).hexdigest()[:32]
            images[digest] = content
            return {REFERENCE: digest}
        if isinstance(part, Mapping):
            return {key: replaced(each) for key, each in part.items()}
        if isinstance(part, list | tuple):
            return [replaced(each) for each in part]
        return part

    return replaced(value), images


def _content(image: Image) -> dict[str, str]:
    """Return the image itself; one given by path or URL is read as GEPA reads it.

    Raises:
        ValueError: it lies at a URL. OSError: it cannot be read.
    """
    if image.base64_data is not None and image.media_type is not None:
        return {"media_type": image.media_type, "base64": image.base64_data}
    url: str = image.to_openai_content_part()["image_url"]["url"]
    head, _, text = url.partition(";base64,")
    if not head.startswith("data:image/"):
        raise ValueError("an image at a URL cannot be sent to the program; give the image itself")
    return {
        "media_type": head.removeprefix("data:"),
        "base64": base64.b64encode(base64.b64decode(text, validate=True)).decode(),
    }
