"""The Docker backend: each sandbox is a container without a network, made from the image of its recipe."""

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
from sandbox_runtime.api.sandbox import EnvironmentMissing
from sandbox_runtime.api.spec import (
    STANDARD_PATH,
    Command,
    GatewaySession,
    PreparedEnvironment,
    Recipe,
    ResourceLimits,
    SandboxSpec,
)
from sandbox_runtime.backends.docker.container import Container, ContainerPlan, container_name
from sandbox_runtime.backends.docker.docker_command import (
    CommandFailed,
    check_daemon,
    docker,
    image_id,
    remove_containers,
)
from sandbox_runtime.backends.image_setup import (
    EXTRAS,
    GATEWAY_VARIABLES,
    PACKAGES,
    PROGRAM,
    SERVER,
    SERVER_PYTHON,
    SERVER_PYTHON_VERSION,
    WORKSPACE,
    copy_packages,
    name_of,
    own_digest,
    prepared,
    requirements,
    write_recipe,
)
from sandbox_runtime.backends.local_backend import LocalBackend, check_egress, gateway_variables
from sandbox_runtime.backends.records import SandboxRecord
from sandbox_runtime.environments.build_folder import build_variables, readable_by, without_passwords

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
        except CommandFailed as error:
            raise EnvironmentMissing(f"the image {base_name()} cannot be built from {BASE}: {error}") from error
    return await _made_image(base_name())


async def _made_image(name: str) -> str:
    """Return the digest of an image that was built."""
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
    given = without_passwords(build_variables(os.environ))
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


class DockerBackend(LocalBackend):
    """See `LocalBackend`; it finds sandboxes at any daemon.

    A container has no network: its first process carries connections over its stdin and stdout. It enforces memory,
    processes, cpu and lifetime; `workspace_mb` limits `/workspace` and `/tmp`, each. Its server runs without a jail, so
    that code candidates are not separated from each other.

    `build_gateway_session`: what a build may reach, by default nothing.
    """

    name = "docker"

    def __init__(self, *, build_gateway_session: GatewaySession | None = None) -> None:
        super().__init__()
        self._build_session = build_gateway_session

    async def open(self) -> None:
        await asyncio.to_thread(check_daemon)

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
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
                image = await self._install(recipe, base, name, on_progress)
        return prepared(recipe, image)

    async def make(self, spec: SandboxSpec, log: OutputTail) -> Container:
        check_egress(spec, self.name)
        image = spec.prepared.image
        if image is None or await asyncio.to_thread(image_id, image) is None:
            raise EnvironmentMissing(f"the daemon has no image {image}: prepare the environment again")
        container = Container(self._records, spec.labels, ContainerPlan(image, spec.limits), log)
        container.variables = spec.prepared.variables(WORKSPACE, STANDARD_PATH)
        return container

    @staticmethod
    def free(record: SandboxRecord) -> None:
        remove_containers([container_name(record.id)])

    async def _install(self, recipe: Recipe, base: str, name: str, on_progress: Callable[[str], None]) -> str:
        """Install a recipe in a container without a network but the build session; return the image that it becomes."""
        plan = ContainerPlan(base, _LIMITS, writable=True, user=BUILDER)
        container = Container(self._records, {"purpose": "build"}, plan, OutputTail(_OUTPUT_BYTES))
        try:
            sources, carried, unseen = _package_sources()
            if unseen:
                on_progress(f"{', '.join(unseen)}: a folder of this machine, which a build in a container cannot use")
            gateway = await gateway_variables(self._build_session, container.listen)
            container.variables = {
                **sources,
                "PATH": f"{SERVER}/bin:/usr/local/bin:/usr/bin:/bin",
                "HOME": f"{WORKSPACE}/home",
                "TMPDIR": f"{WORKSPACE}/tmp",  # noqa: S108  of a container
                "UV_PYTHON_INSTALL_DIR": f"{PROGRAM}/python",
                GATEWAY_VARIABLES: json.dumps(dict(gateway)),
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
        return await _made_image(name)
