"""Python and TypeScript read the same rows from the same files, and refuse the same ones."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evolverpc_common.row_files import RowFileError, read_rows
from tests.rpc_server.program.conftest import PACKAGE, needs_node

READ = """
import { readdirSync } from "node:fs";
const [, , url, folder] = process.argv;
const { readRows } = await import(url);
const found = {};
for (const name of readdirSync(folder)) {
  found[name] = await readRows(`${folder}/${name}`).catch((error) => error.message.replace(`${folder}/`, ""));
}
console.log(JSON.stringify(found));
"""
PARTS = {
    ".csv": ["a", "b", "é", " ", ";", "\u2028", ",", ",", ",", '"', '"', '""', "\n", "\r\n", "\r", "\n"],
    ".jsonl": ['{"a": 1}', '{"b": "\u2028"}', "{", "[]", "3", "\n", "\r\n", "\n", " ", "\ufeff", "{}"],
    ".json": ["[{}]", '[{"a": [1.5, null]}, {"b": 2}]', "[", "]", "3", "\n", "\r", " ", "\n", "\t", "\u2028"],
}


@needs_node
@pytest.mark.parametrize("suffix", PARTS)
def test_both_languages_read_the_same_rows(tmp_path: Path, suffix: str) -> None:
    source = random.Random(20)
    for number in range(200):
        text = "".join(source.choices(PARTS[suffix], k=source.randrange(1, 8)))
        head = "x,y\n" if suffix == ".csv" else source.choice(["", "\ufeff"])
        (tmp_path / f"{number}{suffix}").write_text(head + text, encoding="utf-8", newline="")
    if suffix == ".csv":
        (tmp_path / "long.csv").write_text(f"x,y\n{'long ' * 50_000},1\n")
    script = tmp_path.with_suffix(".mjs")
    script.write_text(READ)
    command = ["node", str(script), PACKAGE.as_uri(), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    theirs = json.loads(done.stdout)
    read = {name: rows for name, rows in theirs.items() if isinstance(rows, list)}
    assert read == {path.name: rows for path in tmp_path.iterdir() if (rows := rows_of(path)) is not None}
    assert 10 < len(read) < 190


def rows_of(path: Path) -> list[dict[str, Any]] | None:
    try:
        return read_rows(path)
    except RowFileError:
        return None
