"""Read the token counts of an answer while it passes: JSON or a stream of events, of either dialect."""

from collections.abc import Mapping
from typing import Any

import orjson

from evolverpc_common.model_prices import TokenCounts
from sandbox_runtime.gateway.providers import Dialect

KEPT = 32 * 2**20
"""Bytes of an answer, or of one line of a stream, beyond which its usage is not read."""


class JsonUsageReader:
    """Reads the usage of an answer that is one JSON value."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._size = 0

    def feed(self, chunk: bytes) -> bytes:
        """Keep a chunk, and return it."""
        self._size += len(chunk)
        if self._size <= KEPT:
            self._kept += chunk
        return chunk

    def rest(self) -> bytes:
        """Return what is held back: nothing."""
        return b""

    def tokens(self) -> tuple[TokenCounts | None, bool]:
        """Return the counts of a complete answer, and whether they cover everything that is charged."""
        try:
            answer = orjson.loads(self._kept) if self._size <= KEPT else None
        except orjson.JSONDecodeError:
            return None, False
        if not isinstance(answer, dict) or not isinstance(usage := answer.get("usage"), dict):
            return None, False
        counted = tokens_of(usage)
        return counted, counted is not None and not _dearer(answer)


class StreamUsageReader:
    """Reads the usage of a stream. `hide_usage`: the event that the gateway itself asked for is not passed on."""

    def __init__(self, dialect: Dialect, *, hide_usage: bool) -> None:
        self._dialect = dialect
        self._hides = hide_usage
        self._line = bytearray()
        self._hidden = False  # the blank line that ends a hidden event goes with it
        self._usage: dict[str, Any] = {}
        self._final = False
        self._dearer = False

    def feed(self, chunk: bytes) -> bytes:
        """Read the lines of a chunk and return what may pass: if an event is to be hidden, whole lines only."""
        shown = bytearray()
        for part in chunk.splitlines(keepends=True):
            self._line += part
            if part.endswith(b"\n"):
                line = bytes(self._line)
                self._line.clear()
                if not self._taken(line):
                    shown += line
            elif len(self._line) > KEPT:
                shown += self._line
                self._line.clear()
        return bytes(shown) if self._hides else chunk

    def rest(self) -> bytes:
        """Return the rest of a stream that ended within a line."""
        line, self._line = bytes(self._line), bytearray()
        return line if self._hides else b""

    def tokens(self) -> tuple[TokenCounts | None, bool]:
        """Return the counts of the events so far, and whether they cover everything that is charged."""
        counted = tokens_of(self._usage) if self._usage else None
        return counted, self._final and not self._dearer and counted is not None

    def _taken(self, line: bytes) -> bool:
        """Return whether a line is to be hidden."""
        if not line.startswith(b"data:"):
            hidden = self._hidden and not line.strip()
            self._hidden = False
            return hidden
        if line.startswith(b"data: [DONE]"):
            self._final = bool(self._usage)
        if b'"usage"' not in line:
            return False
        try:
            event = orjson.loads(line[5:])
        except orjson.JSONDecodeError:
            return False
        if isinstance(event, dict):
            self._see(event)
            self._hidden = self._hides and event.get("choices") == [] and bool(event.get("usage"))
        return self._hidden

    def _see(self, event: dict[str, Any]) -> None:
        inner = event.get("message") or event.get("response")  # of Anthropic's first event; of OpenAI's responses
        holder = inner if isinstance(inner, dict) else event
        usage = holder.get("usage")
        if isinstance(usage, dict):
            # Anthropic's counts add to those before; the others come once, or replace them.
            self._usage |= {name: count for name, count in usage.items() if count is not None}
            last = event.get("type") == "message_delta", event.get("choices") == [] or holder is not event
            self._final = last[self._dialect == "openai"]
        self._dearer = self._dearer or _dearer(holder)


def tokens_of(usage: Mapping[str, Any]) -> TokenCounts | None:
    """Parse the `usage` of chat completions, embeddings, responses or messages; None if it is none of these."""
    if "prompt_tokens" in usage:  # OpenAI's chat completions and embeddings
        total, output = _count(usage["prompt_tokens"]), _count(usage.get("completion_tokens"))
        details = _details(usage, "prompt_tokens_details")
        if _count(details.get("audio_tokens")) or _count(
            _details(usage, "completion_tokens_details").get("audio_tokens")
        ):
            return None  # they have prices of their own
        return _parts(total, details, output)
    if "input_tokens" not in usage:
        return None
    total, output = _count(usage["input_tokens"]), _count(usage.get("output_tokens"))
    if "input_tokens_details" in usage or "total_tokens" in usage:  # OpenAI's responses
        return _parts(total, _details(usage, "input_tokens_details"), output)
    cached, written = (_count(usage.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
    hour = min(_count(_details(usage, "cache_creation").get("ephemeral_1h_input_tokens")), written)
    return TokenCounts(total, cached, written, hour, output)


def _parts(total: int, details: Mapping[str, Any], output: int) -> TokenCounts:
    cached = min(_count(details.get("cached_tokens")), total)
    written = min(_count(details.get("cache_write_tokens")), total - cached)
    return TokenCounts(total - cached - written, cached, written, 0, output)


def _dearer(answer: Mapping[str, Any]) -> bool:
    """Return whether the answer states another price than the usual one."""
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    searches = any(map(_count, _details(usage, "server_tool_use").values()))
    return searches or "priority" in (answer.get("service_tier"), usage.get("service_tier"))


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = usage.get(name)
    return found if isinstance(found, dict) else {}


def _count(found: object) -> int:
    return found if isinstance(found, int) and found > 0 else 0
