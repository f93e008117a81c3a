"""Rows come from the configured sources, under ids that no two loaders share."""

import json
from pathlib import Path

import pytest

from evolverpc_common.settings.sources import SettingsError
from gepa_client.gepa.rows import AnyRow, ServerRow
from gepa_client.run import splits
from gepa_client.settings.run_config import RunConfig


def config(**given: str) -> RunConfig:
    return RunConfig(url=("http://127.0.0.1:1",), max_metric_calls=5, **given)


async def held(split: str) -> list[AnyRow]:
    return [ServerRow(str(at), split, {"split": split, "at": at}) for at in range(3)]


HELD = {"train": 3, "val": 3, "test": 3, "other": 3}


async def test_the_servers_own_splits_are_the_default() -> None:
    found = await splits.find(config(), HELD, held)
    assert found.sizes == {"train": 3, "val": 3, "test": 3}
    assert isinstance(found.train.rows[0], ServerRow)


async def test_no_two_loaders_share_an_id() -> None:
    found = await splits.find(config(), HELD, held)
    assert found.test is not None
    ids = [*found.train.all_ids(), *found.val.all_ids(), *found.test.all_ids()]
    assert len(set(ids)) == len(ids) == 9


async def test_files_and_splits_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([{"at": 1}]))
    found = await splits.find(config(trainset=str(tmp_path / "rows.json"), valset="other"), HELD, held)
    assert found.sizes == {"train": 1, "val": 3, "test": 3}


async def test_a_run_without_training_rows_is_an_error_with_the_next_step() -> None:
    with pytest.raises(SettingsError, match="--trainset"):
        await splits.find(config(), {}, held)


async def test_a_split_the_server_does_not_hold_is_named_with_those_it_does() -> None:
    with pytest.raises(SettingsError, match=r"'trian'.*other, test, train, val"):
        await splits.find(config(trainset="trian"), HELD, held)


async def test_without_validation_rows_the_training_rows_are_used_with_a_warning() -> None:
    found = await splits.find(config(), {"train": 3}, held)
    assert found.val is found.train
    assert any("--valset" in message for message in splits.warnings(found))


async def test_rows_in_two_splits_are_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([{"a": 1, "b": 2}, {"a": 2}, {"a": 3}]))
    (tmp_path / "val.json").write_text(json.dumps([{"a": 9}, {"b": 2, "a": 1}, {"a": 3}]))
    found = await splits.find(
        config(trainset=str(tmp_path / "train.json"), valset=str(tmp_path / "val.json")), {}, held
    )
    [message] = splits.warnings(found)
    assert message.startswith("2 of 3 validation rows are training rows too (ids 1, 2): ")


async def test_rows_on_the_server_are_distinguished_by_split_and_id() -> None:
    async def secret(split: str) -> list[AnyRow]:
        return [ServerRow(str(at), split) for at in range(3)]

    assert splits.warnings(await splits.find(config(testset="train"), HELD, secret)) == [
        "3 of 3 test rows are training rows too (ids 0, 1, 2): the test score is not of new rows"
    ]
    assert splits.warnings(await splits.find(config(), HELD, secret)) == []
