"""Rows come from the configured sources, under ids that no two loaders share."""

import json
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_client.gepa.rows import AnyRow, Row, RowsError, ServerRow
from gepa_client.run import splits
from gepa_client.run.tie_break import reserved_calls
from gepa_client.settings.run_config import RunConfig


def config(**given: Any) -> RunConfig:
    return RunConfig(url=("http://127.0.0.1:1",), max_metric_calls=5, **given)


async def held(split: str) -> list[AnyRow]:
    return [ServerRow(str(at), split, {"split": split, "at": at}) for at in range(3)]


HELD = {"train": 3, "val": 3, "test": 3, "other": 3}


async def test_the_servers_own_splits_are_the_default() -> None:
    found = (await splits.read(config(), HELD, held)).splits
    assert found.sizes == {"train": 3, "val": 3, "test": 3}
    assert isinstance(found.train.rows[0], ServerRow)
    assert found.test is not None
    assert len({*found.train.all_ids(), *found.val.all_ids(), *found.test.all_ids()}) == 9


async def test_missing_rows_are_an_error_with_the_next_step_or_the_splits_that_there_are() -> None:
    with pytest.raises(SettingsError, match="`trainset`"):
        await splits.read(config(), {}, held)
    with pytest.raises(SettingsError, match=r"'trian'.*other, test, train, val"):
        await splits.read(config(trainset="trian"), HELD, held)

    async def none(_split: str) -> list[AnyRow]:
        return []

    with pytest.raises(SettingsError, match="'other' is empty"):
        await splits.read(config(trainset="other"), HELD, none)


async def test_rows_that_a_server_may_change_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"n": 1}\n{"n": 123456789012345678901234567890}\n')
    given = config(trainset=str(tmp_path / "train.jsonl"))
    assert (await splits.read(given, {}, held)).splits.sizes["train"] == 2
    with pytest.raises(RowsError, match="which the server may change"):
        await splits.read(given, {}, held, exact=False)


async def test_without_validation_rows_the_training_rows_are_used_with_a_warning() -> None:
    found = (await splits.read(config(), {"train": 3}, held)).splits
    assert found.val is found.train
    assert any("`valset`" in message for message in splits.warnings(found, config()))
    with_ties = config(tie_rows=5)
    assert any("`tie_rows` has no effect" in message for message in splits.warnings(found, with_ties))
    assert reserved_calls(with_ties, found) == 0


async def test_rows_in_two_splits_are_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([{"a": 1, "b": 2}, {"a": 2}, {"a": "x y"}]))
    (tmp_path / "val.json").write_text(json.dumps([{"a": 9}, {"b": 2, "a": 1}, {"a": " x\n y"}]))
    val = str(tmp_path / "val.json")
    found = (await splits.read(config(trainset=str(tmp_path / "train.json"), valset=val, testset=val), {}, held)).splits
    assert [message.partition(": ")[0] for message in splits.warnings(found, config())] == [
        "2 of 3 validation rows are training rows too (ids 1, 2)",
        "2 of 3 test rows are training rows too (ids 1, 2)",
        "3 of 3 test rows are validation rows too (ids 0, 1, 2)",
    ]


@pytest.fixture
def many(tmp_path: Path) -> str:
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps({"at": at}) + "\n" for at in range(100)))
    return str(path)


async def test_a_fifth_of_the_training_rows_is_kept_for_validation_with_a_warning(many: str) -> None:
    given = config(trainset=many)
    found = (await splits.read(given, {}, held)).splits
    assert found.sizes == {"train": 80, "val": 20}
    assert (await splits.read(config(trainset=many, val_fraction=0.001), {}, held)).splits.sizes == {
        "train": 99,
        "val": 1,
    }
    assert splits.common(found.train.rows, found.val.rows) == []
    assert splits.warnings(found, given) == [
        "no `valset`: 20 of 100 training rows are kept for validation; `val_fraction` 0 uses all rows for both"
    ]


def test_the_same_rows_are_kept_in_another_order() -> None:
    given: list[AnyRow] = [Row(str(at), {"at": at}) for at in range(100)]
    turned: list[AnyRow] = [Row(str(99 - at), {"at": at}) for at in reversed(range(100))]
    named = dict.fromkeys(("train", "val", "test"))

    def taken(seed: int, rows: list[AnyRow]) -> tuple[set[str], set[str]]:
        found = splits.divide(config(val_fraction=0.25, test_fraction=0.2, seed=seed), named, rows)
        assert found.val is not None
        assert found.test is not None
        return {str(row.data) for row in found.val}, {str(row.data) for row in found.test}

    val, test = taken(0, given)
    assert (val, test) == taken(0, turned)
    assert (len(val), len(test), val & test) == (20, 20, set())
    assert taken(1, given)[1] != test
    assert splits.divide(config(test_fraction=0.25), named, given[:60]).val is None, "45 rows are left"


async def test_fewer_than_50_rows_are_used_for_both_unless_a_share_is_given() -> None:
    count = 50

    async def some(split: str) -> list[AnyRow]:
        return [ServerRow(str(at), split) for at in range(count)]

    assert (await splits.read(config(), {"train": 50}, some)).splits.sizes == {"train": 40, "val": 10}
    count = 49

    assert (await splits.read(config(), {"train": 49}, some)).splits.sizes == {"train": 49, "val": 49}
    given = config(val_fraction=0.1)
    found = (await splits.read(given, {"train": 49}, some)).splits
    assert found.sizes == {"train": 44, "val": 5}
    assert splits.warnings(found, given) == []


async def test_equal_rows_stay_in_one_split(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"at": at // 2} for at in range(40)]))
    found = (await splits.read(config(trainset=str(path), val_fraction=0.3), {}, held)).splits
    assert splits.common(found.train.rows, found.val.rows) == []
    path.write_text(json.dumps([{"at": 1}] * 9))
    with pytest.raises(SettingsError, match=r"all 9 are equal.*`val_fraction` 0"):
        await splits.read(config(trainset=str(path), val_fraction=0.3), {}, held)


async def test_a_share_is_refused_if_there_are_validation_rows() -> None:
    with pytest.raises(SettingsError, match="the server holds validation rows"):
        await splits.read(config(val_fraction=0.1), HELD, held)
    with pytest.raises(SettingsError, match="the server holds test rows"):
        await splits.read(config(test_fraction=0.1), HELD, held)
    assert (await splits.read(config(val_fraction=0), HELD, held)).splits.sizes["val"] == 3
    with pytest.raises(ValueError, match="`val_fraction` and `valset` are given"):
        config(val_fraction=0.1, valset="other")
