"""The reference server's images: each record of an example with an `image` holds it as `Image`."""

import json
from typing import Any

from tests.conformance.reference_program import Bad

Dataset = dict[str, list[dict[str, Any]]]


def with_images(bad: Bad, dataset: Dataset) -> tuple[Dataset, dict[str, Any]]:
    """The records with a reference to the image of their example, and the images by id."""
    images: dict[str, Any] = {}

    def shown(record: dict[str, Any]) -> dict[str, Any]:
        output = record.get("Generated Outputs")
        if bad("drops_unknown_references") and isinstance(output, dict) and "$image" in output:
            record = record | {"Generated Outputs": ""}
        inputs = record.get("Inputs")
        if not isinstance(inputs, dict) or "image" not in inputs:
            return record
        image = inputs["image"]
        if bad("images_inline"):
            return record | {"Image": image}
        name = str(len(images)) if bad("images_repeated") else json.dumps(image)
        images[name] = image
        return record | {"Image": {"$image": name}}

    return {name: [shown(record) for record in records] for name, records in dataset.items()}, images
