"""Call the API of Modal: translate its errors into those of the sandbox API, and retry transient ones.

Modal's error                                                    error of the sandbox API
AuthError, PermissionDeniedError                                 RuntimeUnavailable
ResourceExhaustedError                                           RuntimeThrottled
NotFoundError, ConflictError, SandboxTimeoutError,
SandboxTerminatedError, ClientClosed                             SandboxGone
ServiceError, InternalError, both ConnectionErrors               retried, then RuntimeUnavailable
any other                                                        SandboxError
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from modal import exception

from sandbox_runtime.api.sandbox import RuntimeThrottled, RuntimeUnavailable, SandboxError, SandboxGone

ATTEMPTS = 3
"""How often a call that may be repeated is tried; the SDK itself tries each four times."""

FIRST_PAUSE_S = 0.2
THROTTLED_S = 10.0
"""When to try again, which Modal does not state."""

GONE = (
    exception.NotFoundError,
    exception.ConflictError,
    exception.SandboxTimeoutError,
    exception.SandboxTerminatedError,
    exception.ClientClosed,
)
TRANSIENT = (exception.ServiceError, exception.InternalError, exception.ConnectionError, ConnectionError)
REFUSED = (exception.AuthError, exception.PermissionDeniedError)

LOG_IN = (
    "get a token with `modal token new`, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
    " (https://modal.com/settings/tokens)"
)

_T = TypeVar("_T")


@contextlib.contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Translate Modal's errors in the block. `what`: the requested action, for the message."""
    try:
        yield
    except REFUSED as error:
        raise RuntimeUnavailable(f"Modal refuses us ({what}): {error}; {LOG_IN}") from error
    except exception.ResourceExhaustedError as error:
        raise RuntimeThrottled(f"Modal takes no more for now ({what}): {error}", retry_after_s=THROTTLED_S) from error
    except GONE as error:
        raise SandboxGone(f"the sandbox has ended ({what}): {_text_of(error)}") from error
    except TRANSIENT as error:
        raise RuntimeUnavailable(
            f"Modal does not answer as it should ({what}): {_text_of(error)}; try again later"
        ) from error
    except exception.Error as error:
        raise SandboxError(f"Modal cannot {what}: {_text_of(error)}") from error


async def retried(call: Callable[[], Awaitable[_T]]) -> _T:
    """Return what the call returns, repeated after transient errors; for calls that may happen twice."""
    pause = FIRST_PAUSE_S
    for _ in range(ATTEMPTS - 1):
        try:
            return await call()
        except TRANSIENT:
            await asyncio.sleep(pause)
            pause *= 2
    return await call()


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
