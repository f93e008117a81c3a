"""Where things are in an image of ours at Modal, and in a sandbox that was made of it."""

from sandbox_runtime.api.recipe import Prepared, Recipe
from sandbox_runtime.environments.node import wants_node
from sandbox_runtime.environments.python import wants_python

WORKSPACE = "/workspace"
"""The folder of each sandbox's own, where all commands start."""

PORT = 8080
"""Where the server listens; reached by connect tokens alone."""

SERVER = "/opt/evolverpc"
"""The environment of our own packages."""

SERVER_PYTHON_VERSION = "3.12"
"""The same whoever publishes, so that whoever starts finds it."""

SERVER_PYTHON = f"{SERVER}/bin/python"

PROGRAM = "/opt/program"
"""What a recipe asked for: links to where it was installed, so that nobody needs to ask the image."""

PATHS = 4
"""How many folders of `PATH` a recipe can have: one of Python, two of Node, and one to spare."""

RECIPE = "/opt/recipe"
"""The recipe itself, for whoever installs it."""


def prepared(recipe: Recipe, image: str) -> Prepared:
    """The recipe's environment as it is in the image that was published for it."""
    env = {}
    if wants_python(recipe):
        env["VIRTUAL_ENV"] = f"{PROGRAM}/venv"
    if wants_node(recipe) and "package.json" in recipe.files:
        env["NODE_PATH"] = f"{PROGRAM}/node_modules"
    return Prepared(
        recipe=recipe,
        server=(SERVER_PYTHON, "-I", "-m", "rpc_server"),
        python=f"{PROGRAM}/venv/bin/python" if wants_python(recipe) else None,
        path=tuple(f"{PROGRAM}/path/{number}" for number in range(PATHS)),
        image=image,
        env=env,
    )
