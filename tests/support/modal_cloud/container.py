"""The container of one call: runs a function of an app's file with the arguments that come on stdin."""

import asyncio
import contextlib
import importlib.util
import pickle
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import modal
from modal_proto import api_pb2

NONE = pickle.dumps(None)


@contextlib.contextmanager
def forward(port: int) -> Iterator[SimpleNamespace]:
    """As `modal.forward`, whose client must be that of a container, and whose tunnel has TLS."""

    async def start() -> None:
        client = await modal.Client.from_env.aio()
        await client._stub.TunnelStart(api_pb2.TunnelStartRequest(port=port))

    asyncio.run(start())
    yield SimpleNamespace(url=f"http://127.0.0.1:{port}")


def cancel(*_: object) -> None:
    raise modal.exception.InputCancellation


def main() -> None:
    file, name = sys.argv[1:]
    modal.forward = forward
    signal.signal(signal.SIGTERM, cancel)
    spec = importlib.util.spec_from_file_location("app_of_container", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301  what the SDK wrote
    getattr(module, name).local(*args, **kwargs)


if __name__ == "__main__":
    main()
