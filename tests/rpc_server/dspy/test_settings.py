"""What the settings of a DSPy program come to before it is started."""

from pathlib import Path

import pytest

from rpc_server.program.open_program import digest_settings
from rpc_server.settings.settings import Settings

GIVEN = {"kind": "dspy", "program": "codes.Codes", "metric": "codes.metric"}


def test_trainset_and_valset_are_the_splits_train_and_val_beside_others():
    settings = Settings(**GIVEN, trainset_path="train.csv", valset_path="val.json", datasets={"test": "test.jsonl"})
    assert settings.files == {"train": Path("train.csv"), "val": Path("val.json"), "test": Path("test.jsonl")}


@pytest.mark.parametrize(
    "changed",
    [
        {"metric": "codes.other"},
        {"field_descriptions": True},
        {"demos": True},
        {"add_format_failure_as_feedback": True},
        {"seed": 1},
        {"trainset_path": "train.csv"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_changes_the_program_changes_what_is_digested(changed):
    assert digest_settings(Settings(**{**GIVEN, **changed}), None) != digest_settings(Settings(**GIVEN), None)
    assert digest_settings(Settings(**GIVEN, threads=3), None) == digest_settings(Settings(**GIVEN), None)
