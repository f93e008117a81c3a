"""The backends, and the function that opens one; each is imported only if it is chosen."""

from typing import Literal, get_args

from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.api.spec import GatewaySession
from sandbox_runtime.runtime import Runtime

RuntimeKind = Literal["process", "bubblewrap", "docker", "modal"]

RUNTIMES: tuple[RuntimeKind, ...] = get_args(RuntimeKind)


def open_runtime(
    kind: RuntimeKind,
    *,
    build_gateway_session: GatewaySession | None = None,
    app_name: str | None = None,
) -> Runtime:
    """Return a runtime of this kind, to be used in an `async with` block.

    `build_gateway_session`: what builds of environments may reach with `bubblewrap` and `docker`. `app_name`: the app
    at `modal` that the sandboxes belong to, by default that backend's own. Other kinds ignore them.

    Raises:
        RuntimeUnavailable: its package is not installed.
        ValueError: there is no such kind.
    """
    if kind == "process":
        from sandbox_runtime.backends.process import ProcessBackend

        return ProcessBackend()
    if kind == "bubblewrap":
        from sandbox_runtime.backends.bubblewrap.backend import BubblewrapBackend

        return BubblewrapBackend(build_gateway_session=build_gateway_session)
    if kind == "docker":
        from sandbox_runtime.backends.docker.backend import DockerBackend

        return DockerBackend(build_gateway_session=build_gateway_session)
    if kind == "modal":
        try:
            from sandbox_runtime.backends.modal.backend import ModalBackend
        except ModuleNotFoundError as error:
            if error.name != "modal":
                raise
            raise RuntimeUnavailable(
                "sandboxes on Modal need its package: run pip install '.[modal]' in the folder of evolverpc"
            ) from None
        return ModalBackend() if app_name is None else ModalBackend(app_name)
    raise ValueError(f"{kind!r} is no kind of runtime: one of {', '.join(RUNTIMES)}")
