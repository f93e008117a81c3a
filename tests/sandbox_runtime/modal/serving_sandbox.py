"""Sandboxes at Modal without the building of images."""

from typing import Any

from sandbox_runtime import Command, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends import image_setup
from sandbox_runtime.backends.image_setup import name_of
from tests.sandbox_runtime.stub_server import SOURCE
from tests.support.modal_cloud import Cloud

WAIT_S = 60.0
"""Within which something must come to pass, however busy the machine is."""


def published(cloud: Cloud) -> PreparedEnvironment:
    """A recipe that the cloud has an image of, without the building."""
    recipe = Recipe()
    image = f"im-{recipe.digest}"[:25]
    cloud.control.images[image].SetInParent()
    cloud.control.published[name_of(recipe)] = image
    return image_setup.prepared(recipe, image)


def spec(cloud: Cloud, **further: Any) -> SandboxSpec:
    """A sandbox that serves."""
    main = Command((image_setup.SERVER_PYTHON, "-I", "-S", "-c", SOURCE.decode()))
    return SandboxSpec(main=main, prepared=published(cloud), **further)
