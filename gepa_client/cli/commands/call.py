"""`evolverpc call`: one call, for debugging; the exit status gives its outcome."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from evolverpc_common.display_text import plain_json
from evolverpc_common.exact_values import loads, with_integers_packed
from gepa_client.cli.arguments import AllowInsecure, TokenFile
from gepa_client.errors import ClientError, summary, unreadable
from gepa_client.views.console import fail, refuse
from protocol.errors import MethodNotFound, RpcError
from protocol.methods import METHODS

RPC_ERROR = 1


def call(
    url: Annotated[str, typer.Argument(help="The server.")],
    method: Annotated[str, typer.Argument(help="The method, for instance discover.")],
    params: Annotated[str, typer.Argument(help="Its params: JSON text, @FILE, or - for stdin.")] = "{}",
    token_file: TokenFile = None,
    allow_insecure: AllowInsecure = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the answer.")] = 60.0,
) -> None:
    """Make one call and print its result as JSON.

    Exits with 0 for a result, 1 for an error of the server, 2 for a usage or connection error.
    """
    try:
        result = asyncio.run(_call(url, method, _read(params), token_file, allow_insecure, timeout))
    except RpcError as error:
        name = type(error).__name__
        fail(f"{name} ({error.wire_code}): {summary(error).removeprefix(f'{name}: ')}")
        _print(error.to_wire(), to_stderr=True)
        raise typer.Exit(RPC_ERROR) from error
    except ClientError as error:
        refuse(str(error))
    _print(result, to_stderr=False)


async def _call(
    url: str, method: str, params: dict[str, Any], token_file: Path | None, allow_insecure: bool, timeout_s: float
) -> Any:
    from gepa_client.transport.rpc_client import RpcClient  # aiohttp comes with it, which `--help` does not need

    async with RpcClient(url, token_file=token_file, allow_insecure=allow_insecure, timeout_s=timeout_s) as client:
        try:
            return await client.call(method, params)
        except MethodNotFound:
            capabilities = (await client.discover()).capabilities
            offered = [each.name for each in METHODS.values() if each.capability in (None, *capabilities)]
            fail(f"the server has no method {method!r}; it has {', '.join(offered)}")
            raise


def _read(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        params = loads(text)
        params = params if _is_plain(params) else with_integers_packed(params)
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"the params cannot be read: {unreadable(text.removeprefix('@'), error)}")
    except ValueError as error:
        refuse(f"the params cannot be read: {error}")
    if not isinstance(params, dict):
        refuse("params go by name: give a JSON object")
    return params


def _is_plain(params: Any) -> bool:
    """Return whether the params can be sent as they are; an integer of more than 64 bits is sent as a marker."""
    try:
        orjson.dumps(params)
    except TypeError:
        return False
    return True


def _print(value: Any, *, to_stderr: bool) -> None:
    """Print indented JSON with control and bidirectional characters as escapes of JSON."""
    print(plain_json(json.dumps(value, indent=2, ensure_ascii=False)), file=sys.stderr if to_stderr else sys.stdout)
