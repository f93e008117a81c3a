"""Which runtime: the backend that was chosen is imported, and no other."""

from typing import Literal, get_args

from sandbox_runtime.api.gateway_session import Passage
from sandbox_runtime.api.sandbox import Runtime, Unavailable

RuntimeKind = Literal["process", "bubblewrap", "modal"]

RUNTIMES: tuple[RuntimeKind, ...] = get_args(RuntimeKind)


def open_runtime(
    kind: RuntimeKind,
    *,
    build_way_out: Passage | None = None,
    app_name: str | None = None,
) -> Runtime:
    """A runtime of this kind, to be used in an `async with` block.

    `build_way_out`: what `bubblewrap` lets the building of environments reach. `app_name`: the app of `modal` that the
    sandboxes belong to; by default that backend's own. Other kinds have no use for them.

    Raises:
        Unavailable: what it needs is not installed.
        ValueError: there is none of this kind.
    """
    if kind == "process":
        from sandbox_runtime.backends.process import ProcessRuntime

        return ProcessRuntime()
    if kind == "bubblewrap":
        from sandbox_runtime.backends.bubblewrap.runtime import BubblewrapRuntime

        return BubblewrapRuntime(build_way_out=build_way_out)
    if kind == "modal":
        try:
            from sandbox_runtime.backends.modal.runtime import ModalRuntime
        except ModuleNotFoundError as error:
            if error.name != "modal":
                raise
            raise Unavailable(
                "sandboxes on Modal need its package: run pip install '.[modal]' in the folder of evolverpc"
            ) from None
        return ModalRuntime() if app_name is None else ModalRuntime(app_name)
    raise ValueError(f"{kind!r} is no kind of runtime: one of {', '.join(RUNTIMES)}")
