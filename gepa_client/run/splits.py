"""Find the rows of a run, in files or in splits of the server, and rows that are in two splits."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.settings.sources import SettingsError
from gepa_client.gepa.rows import AnyRow, RowLoader, ServerRow, load_rows
from gepa_client.settings.groups import is_file
from gepa_client.settings.run_config import RunConfig

ListServerRows = Callable[[str], Awaitable[list[AnyRow]]]
"""Fetches the rows of a split of the server."""

SHOWN = 3


@dataclass(frozen=True)
class Splits:
    """`val` is `train` itself if the run has no validation rows. `test` may be None."""

    train: RowLoader
    val: RowLoader
    test: RowLoader | None

    @property
    def sizes(self) -> dict[str, int]:
        """Rows per split, `test` only if there is one."""
        sizes = {"train": len(self.train), "val": len(self.val)}
        return sizes | {"test": len(self.test)} if self.test is not None else sizes


async def find(config: RunConfig, held: dict[str, int], list_server_rows: ListServerRows) -> Splits:
    """Return the rows that the settings name; `held`: the splits of the server with their sizes.

    Raises:
        SettingsError: no training rows, or an unknown split. RowsError: an unreadable file.
    """
    named = sources(config, held)
    train = await training_rows(named["train"], held, list_server_rows)
    val = await rows_of(named["val"], "valset", held, list_server_rows)
    test = await rows_of(named["test"], "testset", held, list_server_rows)
    return loaders(train, val, test)


def sources(config: RunConfig, held: dict[str, int]) -> dict[str, str | None]:
    """Return where the rows of `train`, `val` and `test` come from: a file, a split of the server, or None."""
    given = {"train": config.trainset, "val": config.valset, "test": config.testset}
    return {split: source or (split if held.get(split) else None) for split, source in given.items()}


def loaders(train: list[AnyRow], val: list[AnyRow] | None, test: list[AnyRow] | None) -> Splits:
    """Return loaders with ids that no two of them share."""
    train_loader = RowLoader(train)
    val_loader = RowLoader(val, first_id=len(train)) if val is not None else train_loader
    first_test = len(train) + (len(val) if val is not None else 0)
    return Splits(train_loader, val_loader, RowLoader(test, first_id=first_test) if test is not None else None)


async def training_rows(source: str | None, held: dict[str, int], list_server_rows: ListServerRows) -> list[AnyRow]:
    """Return all training rows; raises as `find` does."""
    rows = await rows_of(source, "trainset", held, list_server_rows)
    if rows is None:
        raise SettingsError(
            "no training rows: give --trainset a file (.json, .jsonl, .csv)"
            + (f" or a split the server holds ({', '.join(sorted(held))})" if held else "; this server holds none")
        )
    return rows


async def rows_of(
    source: str | None, setting: str, held: dict[str, int], list_server_rows: ListServerRows
) -> list[AnyRow] | None:
    """Return the rows of a file or of a split of the server; None if `source` is. `setting`: its name in errors."""
    if source is None:
        return None
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


def warnings(splits: Splits) -> list[str]:
    """Return warnings about rows that are in two splits, and what that means for the scores."""
    found = []
    if splits.val is splits.train:
        found.append(
            "no validation rows: candidates are selected on the training rows they learn from, so their scores are "
            "better than on new rows; give --valset"
        )
    elif shared := common(splits.train, splits.val):
        found.append(
            _overlap(shared, "validation", len(splits.val), "training", "selection favours what was learnt by heart")
        )
    if splits.test is not None:
        for name, other in (("training", splits.train), ("validation", splits.val)):
            if (name == "training" or other is not splits.train) and (shared := common(other, splits.test)):
                found.append(_overlap(shared, "test", len(splits.test), name, "the test score is not of new rows"))
    return found


def common(first: RowLoader, second: RowLoader) -> list[tuple[str, str]]:
    """Return `(id in second, id in first)` of equal rows; rows without data are compared by split and id."""
    known = {_key(row): row.id for row in reversed(first.rows)}
    return [(row.id, known[key]) for row in second.rows if (key := _key(row)) in known]


def _key(row: AnyRow) -> str:
    if isinstance(row, ServerRow) and row.data is None:
        return f"{row.split}/{row.id}"
    return json.dumps(row.data, sort_keys=True)


def _overlap(shared: list[tuple[str, str]], name: str, size: int, other: str, meaning: str) -> str:
    which = ", ".join(mine for mine, _ in shared[:SHOWN])
    more = ", ..." if len(shared) > SHOWN else ""
    return f"{len(shared)} of {size} {name} rows are {other} rows too (ids {which}{more}): {meaning}"
