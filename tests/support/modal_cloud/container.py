"""The container of one call: runs a function of an app's file with the arguments that come on stdin."""

import importlib.util
import pickle
import signal
import sys

import modal
from modal._tunnel import Tunnel

NONE = pickle.dumps(None)


def cancel(*_: object) -> None:
    raise modal.exception.InputCancellation


def main() -> None:
    file, name = sys.argv[1:]
    setattr(Tunnel, "url", property(lambda tunnel: f"http://{tunnel.host}:{tunnel.port}"))  # noqa: B010  it is https there
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
