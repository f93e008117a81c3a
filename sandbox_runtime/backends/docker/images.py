"""Images of recipes: one with our own packages, and on top of it one for each recipe, installed in a container."""

import asyncio
import io
import json
import os
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.egress import GatewaySession
from sandbox_runtime.api.sandbox import EnvironmentMissing, RuntimeUnavailable, SandboxError
from sandbox_runtime.api.spec import Command, PreparedEnvironment, Recipe, ResourceLimits
from sandbox_runtime.backends.docker.container import Container, ContainerPlan, container_name
from sandbox_runtime.backends.docker.docker_command import docker, image_id
from sandbox_runtime.backends.image_setup import (
    GATEWAY_VARIABLES,
    PROGRAM,
    SERVER,
    SERVER_PYTHON,
    SERVER_PYTHON_VERSION,
    WORKSPACE,
    prepared,
    write_recipe,
)
from sandbox_runtime.backends.local_steps import gateway_variables
from sandbox_runtime.backends.own_packages import EXTRAS, PACKAGES, copy_packages, name_of, own_digest, requirements
from sandbox_runtime.backends.records import SandboxRecords
from sandbox_runtime.environments.build_folder import build_variables, readable_by

BASE = f"python:{SERVER_PYTHON_VERSION}-slim"
BUILD_S = 3600.0
START_S = 120.0
BUILDER = 1000
"""The user that installs recipes, in a folder of its own."""

_LIMITS = ResourceLimits(cpu=2, memory_mb=8192, workspace_mb=1024, processes=1024, lifetime_s=BUILD_S)
_OUTPUT_BYTES = 64 * 1024
_SHOWN_BYTES = 8192

IMAGE_LABEL = "evolverpc-image"
"""The label of the image with our own packages, and so of those that are made from it."""

KEPT_HOURS = 30 * 24
"""Hours after which an image that no container uses is removed, when another is built."""

_DOCKERFILE = """
FROM {base}
LABEL {label}=1
RUN apt-get update && apt-get install -y --no-install-recommends git ca-certificates && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir uv && uv venv --python /usr/local/bin/python{version} {server}
RUN uv pip install --no-cache --python {python} {requirements}
RUN install -d -m 1777 {workspace} && install -d -o {builder} -g {builder} {program}
COPY ours {server}/lib/python{version}/site-packages
"""


def base_name() -> str:
    """Return the name of the image with our own packages: it changes with each version of our code."""
    return f"evolverpc-base:{own_digest(PACKAGES, EXTRAS)}"


async def ready(
    recipe: Recipe,
    records: SandboxRecords,
    session: GatewaySession | None,
    *,
    on_progress: Callable[[str], None],
    rebuild: bool,
) -> PreparedEnvironment:
    """Return the recipe's environment, its image built if the daemon has none.

    Raises:
        EnvironmentMissing: it cannot be built. RuntimeUnavailable: there is no daemon.
    """
    needs_base_alone = recipe == Recipe()
    name = base_name() if needs_base_alone else name_of(recipe)
    image = None if rebuild and not needs_base_alone else await asyncio.to_thread(image_id, name)
    if image is None:
        await remove_old()
        base = await asyncio.to_thread(image_id, base_name())
        if base is None:
            on_progress(f"building the image {base_name()} from {BASE}")
            base = await _built_base()
        image = base
        if not needs_base_alone:
            on_progress(f"building the image {name}")
            image = await _installed(recipe, base, name, records, session, on_progress)
    return prepared(recipe, image)


async def remove_old(hours: int = KEPT_HOURS) -> None:
    """Remove our images that are older and that no container uses. Raises `SandboxError`."""
    filters = ("--filter", f"label={IMAGE_LABEL}", "--filter", f"until={hours}h")
    await docker("image", "prune", "--all", "--force", *filters, timeout_s=BUILD_S)


async def _built_base() -> str:
    """Build the image of our own packages, which no code of a program takes part in."""
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(copy_packages, PACKAGES, Path(folder) / "ours")
        text = _DOCKERFILE.format(
            base=BASE,
            label=IMAGE_LABEL,
            version=SERVER_PYTHON_VERSION,
            server=SERVER,
            python=SERVER_PYTHON,
            requirements=shlex.join(requirements(EXTRAS)),
            builder=BUILDER,
            program=PROGRAM,
            workspace=WORKSPACE,
        )
        (Path(folder) / "Dockerfile").write_text(text, encoding="utf-8")
        try:
            await docker("build", "--quiet", "--tag", base_name(), folder, timeout_s=BUILD_S)
        except RuntimeUnavailable:
            raise
        except SandboxError as error:
            raise EnvironmentMissing(f"the image {base_name()} cannot be built from {BASE}: {error}") from error
    found = await asyncio.to_thread(image_id, base_name())
    if found is None:
        raise EnvironmentMissing(f"the image {base_name()} was built, and the daemon does not have it")
    return found


async def _installed(
    recipe: Recipe,
    base: str,
    name: str,
    records: SandboxRecords,
    session: GatewaySession | None,
    on_progress: Callable[[str], None],
) -> str:
    """Install a recipe in a container without a network but the session, and keep what is in it as an image."""
    plan = ContainerPlan(base, _LIMITS, writable=True, user=BUILDER)
    container = Container(records, {"purpose": "build"}, plan, OutputTail(_OUTPUT_BYTES))
    try:
        sources, carried, unseen = _package_sources()
        if unseen:
            on_progress(f"{', '.join(unseen)}: a folder of this machine, which a build in a container cannot use")
        container.variables = {
            **sources,
            "PATH": f"{SERVER}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{WORKSPACE}/home",
            "TMPDIR": f"{WORKSPACE}/tmp",  # noqa: S108  of a container
            "UV_PYTHON_INSTALL_DIR": f"{PROGRAM}/python",
            GATEWAY_VARIABLES: json.dumps(dict(await gateway_variables(session, container.listen))),
        }
        async with asyncio.timeout(START_S):
            await container.start()
        with tempfile.TemporaryDirectory() as folder:
            packed = await asyncio.to_thread(_packed, recipe, carried, Path(folder))
            await _run(container, ("tar", "-xf", "-", "-C", f"{WORKSPACE}/home"), packed)
        module = "sandbox_runtime.backends.image_setup"
        await _run(container, (SERVER_PYTHON, "-I", "-m", module, f"{WORKSPACE}/home/recipe", PROGRAM))
        await docker("commit", container_name(container.id), name, timeout_s=BUILD_S)
    finally:
        await container.close()
    found = await asyncio.to_thread(image_id, name)
    if found is None:
        raise EnvironmentMissing(f"the image {name} was built, and the daemon does not have it")
    return found


async def _run(container: Container, argv: Sequence[str], stdin: bytes = b"") -> None:
    output = OutputTail(_OUTPUT_BYTES)
    command = Command(tuple(argv), stdin=stdin, timeout_s=BUILD_S)
    status = await container.run(command, output)
    if status != 0:
        how = f"took longer than {BUILD_S:g} s" if status is None else f"exited with status {status}"
        end = output.bytes()[-_SHOWN_BYTES:].decode("utf-8", "replace").strip()
        raise EnvironmentMissing(f"the environment cannot be built: {argv[0]} {how}\n{end}")


def _package_sources() -> tuple[dict[str, str], dict[str, Path], list[str]]:
    """Return variables that name sources of packages, the files that they name, and the variables that are left out."""
    given = build_variables(os.environ)
    files = {name: Path(value) for name, value in given.items() if value and Path(value).is_file()}
    unseen = [name for name in given if name not in files and [*readable_by({name: given[name]})]]
    passed = {name: value for name, value in given.items() if name not in unseen}
    return {**passed, **{name: f"{WORKSPACE}/home/files/{name}" for name in files}}, files, unseen


def _packed(recipe: Recipe, files: Mapping[str, Path], folder: Path) -> bytes:
    """Return a tar with the recipe, as `recipe/`, and these files by their names, in `files/`."""
    wanted = folder / "recipe"
    wanted.mkdir()
    write_recipe(recipe, wanted)
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.add(wanted, "recipe")
        for name, file in files.items():
            archive.add(file.resolve(), f"files/{name}")
    return written.getvalue()
