"""Which version of a program is active: that of the last promotion of its line. Promotions are only ever added."""

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from gepa_service.model.program_version import Program, Promotion
from gepa_service.records import ATTEMPTS, RecordExists, TenantRecords

IMPROVED = "improved"
DIGEST_LENGTH = 32


class PromotionRefused(Exception):
    """The version cannot become active, or is not; the text has the reason."""


def active_of(records: TenantRecords, line: str) -> Promotion | None:
    """Return the last promotion of a line; its `program_id` is the active version. None: nothing was promoted."""
    found = records.page(Promotion, {"line": line}, limit=1, newest_first=True)
    return found[0] if found else None


def is_active(records: TenantRecords, program: Program) -> bool:
    """Return whether a version is the active one of its line."""
    active = active_of(records, program.line)
    return active is not None and active.program_id == program.id


def active_versions(records: TenantRecords, after: str | None) -> Iterator[Promotion]:
    """Yield the last promotion of each line that has an active version, after the line of the promotion `after`."""
    found = records.store.every(Promotion, records.tenant, after=after)
    for _, of_line in itertools.groupby(found, lambda each: each.line):
        if (last := list(of_line)[-1]).program_id is not None:
            yield last


def promotions_of(records: TenantRecords, *, program_id: str | None = None, line: str | None = None) -> list[Promotion]:
    """Return the promotions of a version or of a line, oldest first."""
    where = {"program_id": program_id} if program_id is not None else {"line": line}
    return list(records.store.every(Promotion, records.tenant, where))


def promote(records: TenantRecords, program: Program, actor: str, reason: str | None) -> Promotion:
    """Make a version the active one of its line. Of two at once, one comes after the other.

    `reason`: to promote a version whose certificate does not state `improved`, or is weakened by leaks; None to refuse
    it.

    Raises:
        PromotionRefused: the version has no such certificate, or is active already.
    """
    is_certified = program.verdict == IMPROVED and not program.leaks
    if not is_certified and reason is None:
        verdict = "has no certificate" if program.verdict is None else f"is certified as `{program.verdict}`"
        if program.leaks:
            verdict += ", weakened by leaks that the certificate states"
        raise PromotionRefused(
            f"the version {verdict}: promote it with `force` and a `reason`, or test it on more rows"
        )

    def chosen(active: Promotion | None) -> str:
        if active is not None and active.program_id == program.id:
            raise PromotionRefused("the version is active already")
        return program.id

    return _added(records, program.line, chosen, actor=actor, forced=None if is_certified else reason)


def roll_back(records: TenantRecords, program: Program, actor: str) -> Promotion:
    """Make the version before the active one active again, or none if none was active before.

    Raises:
        PromotionRefused: the version is not active.
    """

    def before() -> str | None:
        return _before(promotions_of(records, line=program.line))

    return _replaced(records, program, before, actor=actor, rolled_back=True)


def withdraw(records: TenantRecords, program: Program, actor: str) -> None:
    """Leave the line of the active version without one. Raises `PromotionRefused`: the version is not active."""
    _replaced(records, program, lambda: None, actor=actor)


def _replaced(
    records: TenantRecords, program: Program, following: Callable[[], str | None], **fields: Any
) -> Promotion:
    """Add the promotion of what follows the active version. Raises `PromotionRefused`: the version is not active."""

    def chosen(active: Promotion | None) -> str | None:
        if active is None or active.program_id != program.id:
            raise PromotionRefused("the version is not the active one")
        return following()

    return _added(records, program.line, chosen, **fields)


def _before(promotions: list[Promotion]) -> str | None:
    """Return the version that was active before the last promotion of a line; rollbacks take theirs back."""
    active: list[str | None] = []
    for each in promotions:
        if each.rolled_back:
            while active and active[-1] != each.program_id:
                active.pop()
        else:
            active.append(each.program_id)
    return active[-2] if len(active) > 1 else None


def _added(
    records: TenantRecords, line: str, chosen: Callable[[Promotion | None], str | None], **fields: Any
) -> Promotion:
    """Add the promotion of the version that `chosen` returns, given the last promotion of a line; return it.

    `chosen` is called again if another caller's promotion has the number by then.
    """
    digest = hashlib.sha256(line.encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_LENGTH]
    for _ in range(ATTEMPTS):
        active = active_of(records, line)
        number = active.number + 1 if active is not None else 0
        promotion = Promotion(
            tenant=records.tenant,
            id=f"promotion_{digest}_{number:08d}",
            line=line,
            program_id=chosen(active),
            number=number,
            before=active.program_id if active is not None else None,
            **fields,
        )
        with contextlib.suppress(RecordExists):
            records.insert(promotion)
            return promotion
    raise PromotionRefused("other versions of this program are being promoted all the time: try again")
