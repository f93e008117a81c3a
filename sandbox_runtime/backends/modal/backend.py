"""Modal as a backend: sandboxes of one app, made from published images, and found by their tags."""

import asyncio
import contextlib
import logging
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import modal
from modal import exception

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import EnvironmentMissing, RuntimeUnavailable, SandboxError, SandboxInfo
from sandbox_runtime.api.spec import STANDARD_PATH, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends import image_setup
from sandbox_runtime.backends.image_setup import (
    EXTRAS,
    PACKAGES,
    PROGRAM,
    RECIPE,
    SERVER,
    SERVER_PYTHON,
    SERVER_PYTHON_VERSION,
    copy_packages,
    name_of,
    own_digest,
    requirements,
    write_recipe,
)
from sandbox_runtime.backends.modal.api_calls import GONE, REFUSED, retried, translated_errors
from sandbox_runtime.backends.modal.egress_and_tags import START, egress_rules, found, models_url, tags_of_start
from sandbox_runtime.backends.modal.sandbox import ModalSandbox
from sandbox_runtime.runtime import Runtime


def of_recipe(recipe: Recipe, folder: Path) -> modal.Image:
    """Describe the recipe's image; `folder`: an empty folder that is needed until it is built."""
    wanted = folder / "recipe"
    wanted.mkdir()
    write_recipe(recipe, wanted)
    return (
        of_packages(PACKAGES, EXTRAS, folder)
        .add_local_dir(wanted, RECIPE, copy=True)
        .run_commands(
            f"{SERVER_PYTHON} -I -m sandbox_runtime.backends.image_setup {RECIPE} {PROGRAM}", force_build=True
        )
    )


def of_packages(packages: Sequence[str], extras: Sequence[str], folder: Path) -> modal.Image:
    """Describe an image with these packages of ours and what these extras require; `folder`: as for `of_recipe`."""
    ours = folder / "ours"
    copy_packages(packages, ours)
    base = f"/usr/local/bin/python{SERVER_PYTHON_VERSION}"
    site = f"{SERVER}/lib/python{SERVER_PYTHON_VERSION}/site-packages"
    return (
        modal.Image.debian_slim(python_version=SERVER_PYTHON_VERSION)
        .apt_install("git", "ca-certificates")
        .pip_install("uv")
        .run_commands(f"uv venv --python {base} {SERVER}")
        .run_commands(f"uv pip install --python {SERVER_PYTHON} {shlex.join(requirements(extras))}")
        .add_local_dir(ours, site, copy=True)
    )


APP = "evolverpc"
"""The default app of sandboxes, which lists them in Modal's own tools."""

OPEN_S = 30.0
"""Seconds within which Modal must answer."""

UNDO_S = 15.0
"""Seconds after a failed start in which the sandbox is searched that Modal may have made."""

LOOK_S = 0.5
LOOKS = 3
"""How often it is searched if the creation has ended with an unclear outcome."""

_AT_ONCE = 10

_DEFINITE = (*REFUSED, exception.ResourceExhaustedError, exception.InvalidError, exception.NotFoundError)
"""Errors after which there is certainly no sandbox."""

logger = logging.getLogger(__name__)


class ModalBackend(Runtime):
    """See `Runtime`; open it before other calls. `app_name`: the app of the sandboxes.

    Modal enforces egress, cpu, memory and lifetime. It does not limit the disk: `workspace_mb` limits each file, and
    `processes` applies if its kernel counts them. A sandbox is one machine: its server runs without a jail.
    """

    name = "modal"

    def __init__(self, app_name: str = APP) -> None:
        super().__init__()
        self._app_name = app_name
        self._opened: tuple[modal.Client, modal.App] | None = None
        self._started: dict[str, ModalSandbox] = {}

    async def open(self) -> None:
        """Find the app, or make it. Raises `RuntimeUnavailable`: no token, a wrong one, or Modal cannot be reached."""
        try:
            async with asyncio.timeout(OPEN_S):
                with translated_errors("open the app"):
                    client = await modal.Client.from_env.aio()
                    app = await retried(
                        lambda: modal.App.lookup.aio(self._app_name, client=client, create_if_missing=True)
                    )
        except TimeoutError:
            raise RuntimeUnavailable(
                f"Modal does not answer within {OPEN_S:g} s: is there a way to it from here?"
            ) from None
        self._opened = client, app

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        """Find the recipe's published image; only `rebuild` builds one, which takes minutes, and publishes it.

        Raises:
            EnvironmentMissing: none is published (the message names the command that does it), or it cannot be built.
        """
        name = name_of(recipe)
        image: str | None
        if rebuild:
            image = await self._built(name, partial(of_recipe, recipe), on_progress)
        else:
            image = await self._found_image(name)
        if image is None:
            raise EnvironmentMissing(
                f"no image {name} is published at Modal for this program and this version of evolverpc; build it"
                " once, before sandboxes are started: evolverpc sandboxes --publish --repo REPO"
            )
        return image_setup.prepared(recipe, image)

    async def packages_image(
        self, packages: Sequence[str], extras: Sequence[str], *, on_progress: Callable[[str], None]
    ) -> PreparedEnvironment:
        """Find the image of these packages of ours with the requirements of these extras; build it if there is none.

        Raises:
            EnvironmentMissing: it cannot be built.
        """
        name = f"evolverpc:{'-'.join(extras)}-{own_digest(tuple(packages), tuple(extras))}"
        image = await self._found_image(name)
        if image is None:
            image = await self._built(name, partial(of_packages, packages, extras), on_progress)
        return PreparedEnvironment(recipe=Recipe(), server=(), python=image_setup.SERVER_PYTHON, image=image)

    async def begin(self, spec: SandboxSpec, log: OutputTail) -> ModalSandbox:
        image = spec.prepared.image
        if image is None:
            raise EnvironmentMissing("there is no image to start from: `prepare` the recipe with this runtime")
        tags = tags_of_start(spec.labels)
        creating = asyncio.create_task(self._create(spec, image, tags))
        try:
            with translated_errors("create a sandbox"):
                try:
                    created = await asyncio.shield(creating)
                except exception.NotFoundError as error:
                    raise EnvironmentMissing(
                        f"{image} is no image at Modal any more: publish it again ({error})"
                    ) from error
        except BaseException:
            await await_shielded(self._undo(creating, tags[START]))
            raise
        sandbox = self._started[created.object_id] = ModalSandbox(created, spec, log)
        return sandbox

    async def stop(self, id_: str) -> None:
        await await_shielded(self._stop(id_))

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """See `Runtime.found`; the sandboxes of this app. One is known as an orphan only where it was started."""
        client, app = self._client_and_app()
        places_left = asyncio.Semaphore(_AT_ONCE)

        async def listed() -> list[modal.Sandbox]:
            tags = dict(labels or {})
            return [sandbox async for sandbox in modal.Sandbox.list.aio(app_id=app.app_id, tags=tags, client=client)]

        async def info(sandbox: modal.Sandbox) -> SandboxInfo | None:
            async with places_left:
                try:
                    return found(sandbox.object_id, await retried(sandbox.get_tags.aio))
                except GONE:
                    return None  # it has ended since

        with translated_errors("list sandboxes"):
            return list(filter(None, await asyncio.gather(*(info(sandbox) for sandbox in await retried(listed)))))

    async def _stop(self, id_: str) -> None:
        client, _ = self._client_and_app()
        own = self._started.get(id_)
        try:
            with translated_errors(f"end sandbox {id_}"), contextlib.suppress(*GONE):
                sandbox = own.at_modal if own is not None else await modal.Sandbox.from_id.aio(id_, client=client)
                await retried(lambda: sandbox.terminate.aio())
        except SandboxError as error:
            raise SandboxError(f"it may be left at Modal until its lifetime is over: {error}") from error
        finally:
            if own is not None:
                await own.forget()
        if own is not None:
            self._started.pop(id_, None)
            await own.at_modal.detach.aio()  # type: ignore[no-untyped-call]  # after that nothing can be asked

    async def _create(self, spec: SandboxSpec, image: str, tags: dict[str, str]) -> modal.Sandbox:
        client, app = self._client_and_app()
        networks, names = egress_rules(spec.egress, spec.gateway_session)
        session = spec.gateway_session
        # All of it as secrets: Modal shows and keeps none of these, and those of the gateway session hold a token.
        # No proxy: Modal enforces egress itself, on direct connections.
        hidden: dict[str, str | None] = {
            **({} if session is None else session.env(models_url(session), None)),
            **spec.secrets,
        }
        return await modal.Sandbox.create.aio(
            *("sleep", "infinity"),
            app=app,
            client=client,
            image=modal.Image.from_id(image, client=client),
            tags=tags,
            env={**spec.prepared.variables(image_setup.WORKSPACE, STANDARD_PATH), **spec.env},
            secrets=[modal.Secret.from_dict(hidden)] if hidden else None,
            timeout=math.ceil(spec.limits.lifetime_s),
            workdir=image_setup.WORKSPACE,
            cpu=(spec.limits.cpu, spec.limits.cpu),
            memory=(spec.limits.memory_mb, spec.limits.memory_mb),
            outbound_cidr_allowlist=networks,
            outbound_domain_allowlist=names,
        )

    async def _undo(self, creating: "asyncio.Task[modal.Sandbox]", start: str) -> None:
        """End a sandbox that a failed creation has made or still makes, which Modal would keep."""
        loop = asyncio.get_running_loop()
        deadline, looks = loop.time() + UNDO_S, LOOKS
        try:
            while looks and loop.time() < deadline:
                if creating.done():
                    error = creating.exception()
                    if error is None:
                        return await self._stop(creating.result().object_id)
                    if isinstance(error, (*_DEFINITE, SandboxError)):
                        return None
                    looks -= 1
                for left in await self.found({START: start}):
                    return await self._stop(left.id)
                await (asyncio.sleep(LOOK_S) if creating.done() else asyncio.wait([creating], timeout=LOOK_S))
        except SandboxError as error:
            logger.warning("a sandbox may be left at Modal until its lifetime is over (%s=%s): %s", START, start, error)
        finally:
            creating.cancel()
            await asyncio.gather(creating, return_exceptions=True)
        return None

    async def _found_image(self, name: str) -> str | None:
        """Return the id of a published image, None if there is none."""
        client, app = self._client_and_app()
        with translated_errors("find an image"):
            try:
                # Of an image that has a name, `build` looks it up, and builds nothing.
                image = await retried(lambda: modal.Image.from_name(name, client=client).build.aio(app))
            except exception.NotFoundError:
                return None
        return image.object_id

    async def _built(
        self, name: str, described: Callable[[Path], modal.Image], on_progress: Callable[[str], None]
    ) -> str:
        """Build and publish an image, which `described` describes with an empty folder; return its id."""
        client, app = self._client_and_app()
        on_progress(f"building the image {name} at Modal")
        with translated_errors("build an image"), tempfile.TemporaryDirectory() as folder:
            image = await asyncio.to_thread(described, Path(folder))
            try:
                await image.build.aio(app)
            except exception.ImageBuildError as error:
                raise EnvironmentMissing(
                    f"the image cannot be built: {error}\n`modal image logs {error.image_id}` has what was written"
                ) from error
            await image.publish.aio(name, client=client)
        on_progress(f"published the image {name}")
        return image.object_id

    def _client_and_app(self) -> tuple[modal.Client, modal.App]:
        if self._opened is None:
            raise RuntimeError('open the runtime first: `async with open_runtime("modal") as runtime`')
        return self._opened
