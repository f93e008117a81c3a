"""Find the rows of a run, in files or in splits of the server, and rows that are in two splits."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolverpc_common.settings.sources import SettingsError
from gepa_client.gepa.rows import AnyRow, RowLoader, check_carried, load_rows, numbered
from gepa_client.journal.history import content_key
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import LEAST_TO_SPLIT, RECORDED_ROWS, VAL_FRACTION, Rows, is_file

ListServerRows = Callable[[str], Awaitable[list[AnyRow]]]
"""Fetches the rows of a split of the server."""

SHOWN = 3


@dataclass(frozen=True)
class Splits:
    """`val` is `train` itself if the run has no validation rows. `test` may be None.

    `kept`: the share of the training rows that was kept for validation just now; 0 for rows that a record holds.
    """

    train: RowLoader
    val: RowLoader
    test: RowLoader | None
    kept: float = 0.0

    @property
    def training_only(self) -> bool:
        """Whether the training rows are the validation rows too."""
        return self.val is self.train

    @property
    def sizes(self) -> dict[str, int]:
        """Rows per split, `test` only if there is one."""
        sizes = {"train": len(self.train), "val": len(self.val)}
        return sizes | {"test": len(self.test)} if self.test is not None else sizes


@dataclass(frozen=True)
class DividedRows:
    """The rows of a run: for training, for validation and for the test, None for a split without rows.

    `given`: the training rows before others were taken of them. `taken`: the rows that were, by split. `kept`: the
    share for validation, of the rows that the test left.
    """

    train: list[AnyRow]
    val: list[AnyRow] | None
    test: list[AnyRow] | None
    given: Sequence[AnyRow]
    taken: Mapping[str, list[AnyRow]]
    kept: float

    @property
    def splits(self) -> Splits:
        """The loaders of these rows."""
        return replace(loaders(self.train, self.val, self.test), kept=self.kept)


async def read(
    config: RunConfig, held: dict[str, int], list_server_rows: ListServerRows, *, exact: bool = True
) -> DividedRows:
    """Return the rows that the settings name, divided; `held`: the splits of the server with their sizes.

    `exact`: the server has the capability `exact_values`.

    Raises:
        SettingsError: no training rows, an unknown split, or no test rows though `require` needs them.
        RowsError: an unreadable file, or a row that the server may change.
    """
    named = sources(config, held)
    given = {
        split: await rows_of(source, f"{split}set", held, list_server_rows, exact=exact)
        for split, source in named.items()
    }
    if (train := given.pop("train")) is None:
        raise SettingsError(
            "no training rows: give `trainset` a file (.json, .jsonl, .csv)"
            + (f" or a split the server holds ({', '.join(sorted(held))})" if held else "; this server holds none")
        )
    found = divide(config, named, train, **given)
    if found.test is None and config.require is not None:
        raise SettingsError(f"`require` is {config.require}, and only test rows can show that: give `testset`")
    return found


def kept_fraction(config: RunConfig, named: Mapping[str, Rows | None], rows: int) -> float:
    """Return the share of `rows` training rows to keep for validation; `named`: as `sources` returns it.

    Raises:
        SettingsError: a share is given, but there are validation rows.
    """
    if named["val"] is None:
        return VAL_FRACTION if config.val_fraction is None and rows >= LEAST_TO_SPLIT else config.val_fraction or 0.0
    if config.val_fraction and config.valset is None:
        raise SettingsError(
            f"val_fraction is {config.val_fraction:g}, but the server holds validation rows (split {named['val']!r}): "
            "leave val_fraction out"
        )
    return 0.0


def divide(
    config: RunConfig,
    named: Mapping[str, Rows | None],
    rows: Sequence[AnyRow],
    val: list[AnyRow] | None = None,
    test: list[AnyRow] | None = None,
) -> DividedRows:
    """Take test and validation rows out of the training rows, as the settings state; `named`: as `sources` returns it.

    `val`, `test`: the rows of a split that has its own.

    Raises:
        SettingsError: a share is given for a split that the server holds, or the rows do not differ.
    """
    train, taken = list(rows), dict[str, list[AnyRow]]()
    if config.test_fraction:
        if named["test"] is not None:
            raise SettingsError(
                f"test_fraction is {config.test_fraction:g}, but the server holds test rows (split {named['test']!r}): "
                "leave test_fraction out"
            )
        train, taken["test"] = _taken(train, config.test_fraction, "test_fraction", str(config.seed))
    kept = kept_fraction(config, named, len(train))
    if kept:
        train, taken["val"] = _taken(train, kept, "val_fraction", "")
    return DividedRows(train, taken.get("val", val), taken.get("test", test), rows, taken, kept)


def _taken(rows: Sequence[AnyRow], fraction: float, setting: str, seed: str) -> tuple[list[AnyRow], list[AnyRow]]:
    """Return the rows that are left and those that are taken, each in their order.

    A hash of its data and the seed decides about a row: the same rows are taken in every run with this seed, and equal
    rows stay together. `seed` is empty for validation rows, which are the same with any seed. One row at least is
    taken, and one is left.

    Raises:
        SettingsError: the rows do not differ.
    """
    key, person = seed.encode(), setting.encode()
    hashes = [hashlib.blake2b(_key(row).encode(), digest_size=8, key=key, person=person).digest() for row in rows]
    different = sorted(set(hashes))
    if len(different) < 2:
        raise SettingsError(
            f"{setting} needs two training rows that differ, and all {len(rows)} are equal: add rows, or give "
            f"`{setting}` 0"
        )
    last = min(sorted(hashes)[max(1, round(len(rows) * fraction)) - 1], different[-2])
    left = [row for row, found in zip(rows, hashes, strict=True) if found > last]
    return left, [row for row, found in zip(rows, hashes, strict=True) if found <= last]


def sources(config: RunConfig, held: dict[str, int]) -> dict[str, Rows | None]:
    """Return where the rows of `train`, `val` and `test` come from: a file, a split of the server, rows, or None."""
    given = {"train": config.trainset, "val": config.valset, "test": config.testset}
    return {split: source or (split if held.get(split) else None) for split, source in given.items()}


def loaders(train: list[AnyRow], val: list[AnyRow] | None, test: list[AnyRow] | None) -> Splits:
    """Return loaders with ids that no two of them share."""
    train_loader = RowLoader(train)
    val_loader = RowLoader(val, first_id=len(train)) if val is not None else train_loader
    first_test = len(train) + (len(val) if val is not None else 0)
    return Splits(train_loader, val_loader, RowLoader(test, first_id=first_test) if test is not None else None)


async def rows_of(
    source: Rows | None, setting: str, held: dict[str, int], list_server_rows: ListServerRows, *, exact: bool = True
) -> list[AnyRow] | None:
    """Return the rows of a file, a split of the server, or as given; None if `source` is. `setting`: for errors."""
    rows = None if source is None else await _rows_of(source, setting, held, list_server_rows)
    if rows is not None and not exact:
        check_carried(rows, setting, source if isinstance(source, str) and is_file(source) else None)
    return rows


async def _rows_of(source: Rows, setting: str, held: dict[str, int], list_server_rows: ListServerRows) -> list[AnyRow]:
    if not isinstance(source, str):
        return list(numbered(source))
    if source == RECORDED_ROWS:
        raise SettingsError(
            f"{setting}: its rows were given inline or over stdin, and are not recorded yet: give them again, "
            "such as a file"
        )
    if is_file(source):
        return list(load_rows(source))
    if source not in held:
        if await asyncio.to_thread(Path(source).is_file):
            return list(load_rows(source))  # raises an error that names the suffixes
        offered = ", ".join(sorted(held)) if held else "none"
        raise SettingsError(
            f"{setting}: {source!r} is neither a file (.json, .jsonl, .csv) nor a split the server holds ({offered})"
        )
    rows = await list_server_rows(source)
    if not rows:
        raise SettingsError(f"{setting}: the server's split {source!r} is empty")
    return rows


def described(source: Rows | None) -> str:
    """Return what names the rows for people."""
    return "the settings" if source is not None and not isinstance(source, str) else str(source)


def warnings(splits: Splits, config: RunConfig) -> list[str]:
    """Return warnings about validation rows that no setting names and rows that are in two splits."""
    found = []
    if splits.kept and config.val_fraction is None:
        found.append(
            f"no `valset`: {len(splits.val)} of {len(splits.train) + len(splits.val)} training rows are kept for "
            "validation; `val_fraction` 0 uses all rows for both"
        )
    if splits.training_only:
        found.append(
            "no validation rows: candidates are selected on the training rows they learn from, so their scores are "
            f"better than on new rows; give `valset`, or `val_fraction` {VAL_FRACTION:g} to keep some of them"
        )
        if config.tie_rows:
            found.append(
                "`tie_rows` has no effect: the validation rows are the training rows, so none of them is fresh; give "
                "`valset`"
            )
    val, test = None if splits.training_only else splits.val.rows, splits.test.rows if splits.test is not None else None
    return [*found, *overlaps(splits.train.rows, val, test)]


def overlaps(train: Sequence[AnyRow], val: Sequence[AnyRow] | None, test: Sequence[AnyRow] | None) -> list[str]:
    """Return warnings about rows that are in two splits."""
    found = []
    if val is not None and (shared := common(train, val)):
        found.append(_overlap(shared, "validation", len(val), "training", "selection favours what was learnt by heart"))
    if test is not None:
        for name, other in (("training", train), ("validation", val or ())):
            if shared := common(other, test):
                found.append(_overlap(shared, "test", len(test), name, "the test score is not of new rows"))
    return found


def common(first: Sequence[AnyRow], second: Sequence[AnyRow]) -> list[tuple[str, str]]:
    """Return `(id in second, id in first)` of equal rows, as `content_key` compares them."""
    known = {_key(row): row.id for row in reversed(first)}
    return [(row.id, known[key]) for row in second if (key := _key(row)) in known]


def _key(row: AnyRow) -> str:
    return content_key(row.wire, row.data)


def _overlap(shared: list[tuple[str, str]], name: str, size: int, other: str, meaning: str) -> str:
    which = ", ".join(mine for mine, _ in shared[:SHOWN])
    more = ", ..." if len(shared) > SHOWN else ""
    return f"{len(shared)} of {size} {name} rows are {other} rows too (ids {which}{more}): {meaning}"
