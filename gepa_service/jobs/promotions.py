"""Which version of a program is active: promotion and rollback, each an atomic change that is recorded."""

import hashlib
from collections.abc import Callable

from gepa_service.model.program_version import ActiveVersion, Program, Promotion
from gepa_service.records.every import every
from gepa_service.records.record import new_id, now
from gepa_service.records.store import ATTEMPTS, RecordChanged, RecordExists, TenantRecords

IMPROVED = "improved"
DIGEST_LENGTH = 32


class PromotionRefused(Exception):
    """The version cannot become active, or is not; the text has the reason."""


def active_of(records: TenantRecords, line: str) -> ActiveVersion | None:
    """Return the active version of a line; None if none was promoted."""
    return records.get(ActiveVersion, active_id(line))


def active_id(line: str) -> str:
    """Return the id of the record of a line's active version."""
    return hashlib.sha256(line.encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_LENGTH]


def promotions_of(records: TenantRecords, *, program_id: str | None = None, line: str | None = None) -> list[Promotion]:
    """Return the promotions of a version or of a line, oldest first."""
    where = {"program_id": program_id} if program_id is not None else {"line": line}
    found = every(records.store, Promotion, records.tenant, where)
    return sorted(found, key=lambda each: (each.line, each.number, each.id))  # of several machines, whose clocks differ


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
    forced = None if is_certified else reason

    def chosen(active: ActiveVersion | None) -> Promotion:
        if active is not None and active.program_id == program.id:
            raise PromotionRefused("the version is active already")
        return _promotion(records, program.line, program.id, active, actor, forced=forced)

    return _changed(records, program.line, chosen)


def roll_back(records: TenantRecords, program: Program, actor: str) -> Promotion:
    """Make the version before the active one active again.

    Raises:
        PromotionRefused: the version is not active, or none was active before it.
    """

    def chosen(active: ActiveVersion | None) -> Promotion:
        if active is None or active.program_id != program.id:
            raise PromotionRefused("the version is not the active one")
        before = _before(promotions_of(records, line=program.line), active.promotion_id)
        if before is None:
            raise PromotionRefused("no version was active before this one")
        return _promotion(records, program.line, before, active, actor, rolled_back=True)

    return _changed(records, program.line, chosen)


def _before(promotions: list[Promotion], last: str) -> str | None:
    """Return the version that was active before the one of the promotion `last`; rollbacks take theirs back."""
    active: list[str] = []
    for each in promotions:
        if each.rolled_back and active:
            active.pop()
        elif not each.rolled_back:
            active.append(each.program_id)
        if each.id == last:
            break
    return active[-2] if len(active) > 1 else None


def _promotion(
    records: TenantRecords,
    line: str,
    program_id: str,
    active: ActiveVersion | None,
    actor: str,
    *,
    forced: str | None = None,
    rolled_back: bool = False,
) -> Promotion:
    return Promotion(
        tenant=records.tenant,
        id=new_id("promotion"),
        line=line,
        program_id=program_id,
        number=active.version + 1 if active is not None else 0,
        before=active.program_id if active is not None else None,
        actor=actor,
        forced=forced,
        rolled_back=rolled_back,
    )


def _changed(records: TenantRecords, line: str, chosen: Callable[[ActiveVersion | None], Promotion]) -> Promotion:
    """Record what `chosen` makes of the active version, and make it so; again if another caller came before.

    The promotion is written first, so that an active version always has one; one that came second is deleted.
    """
    for _ in range(ATTEMPTS):
        active = active_of(records, line)
        promotion = chosen(active)
        records.insert(promotion)
        try:
            if active is None:
                records.insert(
                    ActiveVersion(
                        tenant=records.tenant,
                        id=active_id(line),
                        line=line,
                        program_id=promotion.program_id,
                        promotion_id=promotion.id,
                        since=now(),
                    )
                )
            else:
                changes = {"program_id": promotion.program_id, "promotion_id": promotion.id, "since": now()}
                records.replace(active.model_copy(update=changes))
        except (RecordChanged, RecordExists):
            records.delete(promotion)
        except BaseException:
            records.delete(promotion)
            raise
        else:
            return promotion
    raise PromotionRefused("other versions of this program are being promoted all the time: try again")
