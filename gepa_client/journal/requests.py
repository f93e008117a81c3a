"""A request of GEPA: its key, its recorded answer (large outputs stay in the store), its attempts and their costs."""

import asyncio
import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from gepa_client.errors import RecordedFailure
from gepa_client.journal.buffer import LARGEST_HELD, JournalStorage
from gepa_client.journal.entries import (
    EVALUATE,
    FAILURE,
    RETRACE,
    SELF_REPORTED,
    WITHOUT_ANSWER,
    Attempt,
    Entry,
    Spending,
    unreported_results,
)
from gepa_client.transport.calls import FailedTry
from gepa_client.transport.event_loop import GroupTask
from protocol import JsonValue
from protocol.errors import RpcError

if TYPE_CHECKING:
    from gepa_client.journal.journal import Journal

DIGEST_BYTES = 16
SHOWN = 8
"""Characters of a candidate's digest in descriptions."""

LARGE_MEMBERS = ("output", "trajectory", "feedback")
"""Members of a result that may be of any size."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What GEPA asks for; the fields are those of `Entry`."""

    kind: str
    digest: str
    about: str
    candidate: str = ""
    row: str = ""

    def answered(self, part: str, number: int, answer: bytes, *, kind: str | None = None) -> Entry:
        """Return the entry with an answer; `kind`: another one than that of the request."""
        kind = kind or self.kind
        return Entry(part, number, kind, self.digest, self.about, answer, candidate=self.candidate, row=self.row)


def digest_of(value: Any) -> str:
    """Return a digest of any JSON value, in hex; the order of keys does not matter."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return _digest(text)


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def evaluate_key(candidate_digest: str, example_digest: str, example_id: str, trace: bool) -> RequestKey:
    """Return the key of one example with one candidate; takes digests, as a run repeats them often."""
    traced = ", traced," if trace else ""
    about = f"evaluate example {example_id!r}{traced} with candidate {candidate_digest[:SHOWN]}"
    text = f"evaluate {candidate_digest} {example_digest} {trace}"
    return RequestKey(EVALUATE, _digest(text.encode()), about, candidate_digest, example_digest)


def request_key(kind: str, about: str, *parts: Any) -> RequestKey:
    """Return the key of any other request; `parts`: JSON values that determine its answer."""
    return RequestKey(kind, digest_of([kind, *parts]), about)


@dataclass
class RecordedRequest:
    """A numbered request, and what is recorded of it: an answer, or the exception that GEPA got (`failure`)."""

    number: int
    key: RequestKey
    entry: Entry | None = None
    attempts: int = 0
    """The number of the last attempt made for it."""
    claimed: set[int] = field(default_factory=set)
    """Attempts of an earlier process that a call of this process has taken over."""
    size: int = 0
    """Bytes of its answer, if it has one."""
    read: Callable[[], bytes] | None = None
    """Reads a recorded answer that was left in the store."""

    @property
    def recorded(self) -> bool:
        """Whether the journal has its answer."""
        return self.entry is not None and self.entry.kind != FAILURE

    @property
    def failure(self) -> Exception | None:
        """The exception that is recorded in place of an answer."""
        if self.entry is None or self.entry.kind != FAILURE:
            return None
        recorded = orjson.loads(self.entry.answer)
        if "rpc" in recorded:
            return RpcError.from_wire(recorded["rpc"])
        return RecordedFailure(f"{recorded['type']}: {recorded['message']}")

    @property
    def answer(self) -> JsonValue:
        """The recorded answer."""
        if self.entry is None:
            raise LookupError(f"nothing is recorded at {self.number}")
        answer: JsonValue = orjson.loads(self.entry.answer if self.read is None else self.read())
        return answer


def first_failure(requests: Iterable[RecordedRequest]) -> Exception | None:
    """Return the recorded exception of the first request that has one."""
    return next((request.failure for request in requests if request.failure is not None), None)


@dataclass(frozen=True)
class RecordedOutput:
    """Stands for a member of a recorded result that is too large to be held in memory.

    `part`, `number`: of its entry in the journal of the run `run_id`.
    """

    run_id: str
    part: str
    number: int
    _storage: JournalStorage = field(repr=False, compare=False)

    def result(self) -> dict[str, Any]:
        """Read the whole result from the journal."""
        result: dict[str, Any] = orjson.loads(self._storage.answer(self.part, self.number))
        return result

    def reference(self) -> dict[str, Any]:
        """Return what a file holds in its place: its entry. `gepa_client.load_result` reads it."""
        return {"in_journal": {"run": self.run_id, "part": self.part, "number": self.number}}

    def in_place_of_large_members(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result as it is held in memory, with this in place of each large member."""
        return {
            key: self if key in LARGE_MEMBERS and len(orjson.dumps(value)) > LARGEST_HELD else value
            for key, value in result.items()
        }


def complete(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with all its members, reading them from the journal if necessary."""
    stand_in = next((result[key] for key in LARGE_MEMBERS if isinstance(result.get(key), RecordedOutput)), None)
    return dict(result) if stand_in is None else stand_in.result()


def journal_reference(value: object) -> Any:
    """Return a `RecordedOutput` as JSON, for `json.dumps(default=journal_reference)`."""
    if isinstance(value, RecordedOutput):
        return value.reference()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


@dataclass
class Tally:
    """The totals of attempts of one kind: calls, examples with a result, and what they reported as costs.

    Cost and tokens sum what was reported; `unpriced` counts results that came without a `cost_usd`, `unreported` those
    of them that `unreported_results` counts.
    """

    examples: int = 0
    calls: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    unpriced: int = 0
    unreported: int = 0


class SpendingTotals:
    """A tally for each kind of attempt (`evaluate`, `retrace`, `score`, `completion`, ...).

    `before`: the spending of earlier processes of the same run, part of every figure. May be used from any thread.
    """

    def __init__(self, before: Iterable[Spending] = ()) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, Tally] = defaultdict(Tally)
        self._watchers: list[Callable[[], None]] = []
        for spent in before:
            tally = self._kinds[spent.kind]
            tally.calls += spent.attempts
            tally.cost_usd += spent.cost_usd
            tally.input_tokens += spent.input_tokens
            tally.output_tokens += spent.output_tokens
            tally.unpriced += spent.unpriced
            tally.unreported += spent.unreported

    def __getitem__(self, kind: str) -> Tally:
        """Return the tally of one kind, which keeps growing."""
        with self._lock:
            return self._kinds[kind]

    def started(self, kind: str) -> None:
        """Count a call that was sent."""
        with self._lock:
            self._kinds[kind].calls += 1

    def finished(self, kind: str, usage: Mapping[str, Any] | None, examples: int, unpriced: int) -> None:
        """Add the cost of an attempt that ended with so many results; arguments as in `Attempt`."""
        with self._lock:
            tally = self._kinds[kind]
            tally.unpriced += unpriced
            tally.unreported += unreported_results(kind, usage, examples, unpriced)
            if usage is not None:
                tally.cost_usd += usage.get("cost_usd") or 0.0
                tally.input_tokens += usage.get("input_tokens") or 0
                tally.output_tokens += usage.get("output_tokens") or 0
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called after every attempt, on the thread that made it."""
        with self._lock:
            self._watchers.append(watcher)

    def add_examples(self, kind: str, examples: int) -> None:
        """Count examples that have their result."""
        with self._lock:
            self._kinds[kind].examples += examples

    @property
    def cost_usd(self) -> float:
        """The known spending in US dollars, over all kinds."""
        with self._lock:
            return sum(tally.cost_usd for tally in self._kinds.values())

    @property
    def known_cost_usd(self) -> float | None:
        """The same; None if nothing had a price."""
        return self.cost_usd or (None if self.unpriced else 0.0)

    @property
    def unpriced(self) -> dict[str, int]:
        """The number of results without a price, by kind."""
        with self._lock:
            return {kind: tally.unpriced for kind, tally in self._kinds.items() if tally.unpriced}

    @property
    def unreported(self) -> dict[str, int]:
        """The number of results that reported no usage and may have cost nothing, by kind."""
        with self._lock:
            return {kind: tally.unreported for kind, tally in self._kinds.items() if tally.unreported}


@dataclass
class JournaledAttempts:
    """The `AttemptLog` of one call that is made for a recorded request; several calls may be made for the same one.

    `task`: marked as begun once the first attempt is recorded.
    """

    journal: "Journal"
    request: RecordedRequest
    kind: str
    task: GroupTask | None = None
    _current: Attempt | None = field(default=None, init=False)
    _end_is_known: bool = field(default=False, init=False)

    def unfinished(self) -> tuple[str, str | None] | None:
        """Return (url, instance) of an attempt of an earlier process with no recorded end, or no recorded answer."""
        if not self.request.attempts or self.kind == RETRACE:  # of many examples of a request: which one is unknown
            return None
        made = [
            attempt
            for attempt in self.journal.storage.attempts(self.journal.part, self.request.number)
            if attempt.kind == self.kind
        ]
        if self._current or not made or made[-1].outcome in WITHOUT_ANSWER or made[-1].attempt in self.request.claimed:
            return None
        self._current = made[-1]
        self._end_is_known = made[-1].outcome is not None
        self.request.claimed.add(made[-1].attempt)
        return made[-1].endpoint, made[-1].instance

    async def start(self, url: str, instance: str | None, *, repeat: bool) -> str:
        """Record that an attempt starts and return its call id; `repeat`: the one before is sent again."""
        call_id = self.start_now(url, instance, repeat=repeat)
        if not repeat:
            try:
                await self.journal.settled()
            except asyncio.CancelledError:  # the caller has given up, and nothing was sent
                self.finish("refused", examples=0)
                raise
        if self.task is not None:
            self.task.begun = True
        return call_id

    def start_now(self, endpoint: str, instance: str | None = None, *, repeat: bool = False) -> str:
        """Do the same without waiting for the store."""
        self.journal.cancel_token.check()
        request, journal = self.request, self.journal
        if not repeat:
            request.attempts += 1
            self._current = Attempt(journal.part, request.number, request.attempts, self.kind, endpoint, instance)
            journal.storage.write(self._current)
            journal.spending.started(self.kind)
        return f"{journal.name(request.number)}/{self._made().attempt}"

    def finish(
        self,
        outcome: str,
        *,
        seconds: float | None = None,
        usage: Mapping[str, Any] | None = None,
        examples: int = 1,
        unpriced: int = 0,
        failed: Sequence[FailedTry] = (),
    ) -> None:
        """Record the end of the attempt and its cost, unless a gateway or an earlier process has counted the cost."""
        if self._end_is_known:
            self._end_is_known = False
            return
        journal = self.journal
        recorded = dict(usage) if usage is not None else None
        if journal.metered and self.kind in SELF_REPORTED:
            unpriced = 0
            if recorded is not None:
                recorded.pop("cost_usd", None)
        journal.spending.finished(self.kind, recorded, examples, unpriced)
        ended = replace(
            self._made(), outcome=outcome, seconds=seconds, usage=recorded, examples=examples, unpriced=unpriced
        )
        if failed:
            written = orjson.loads(journal.secrets.written([asdict(each) for each in failed]))
            ended = replace(ended, failed=[FailedTry(**each) for each in written])
        journal.storage.write(ended)

    def _made(self) -> Attempt:
        if self._current is None:
            raise LookupError(f"no attempt was made for {self.request.number}")
        return self._current
