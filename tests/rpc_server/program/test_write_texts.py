"""A program that writes texts into its own files, for changes of code that take a candidate's texts along."""

import pytest

PROGRAM = """
from pathlib import Path
seed_candidate = {"prompt": "seed"}
def run(example, candidate):
    return ""
def write_texts(texts):
    Path("prompt.txt").write_text(texts["prompt"])
    return RETURNED
"""


@pytest.mark.parametrize(("returned", "files"), [("None", []), ("[Path('prompt.txt')]", ["prompt.txt"])])
async def test_a_function_write_texts_gets_the_texts_and_may_name_its_files(opened, tmp_path, returned, files):
    (tmp_path / "writing.py").write_text(PROGRAM.replace("RETURNED", returned))
    async with opened("writing.py", root=tmp_path) as running:
        assert await running.program.call("write_texts", {"candidate": {"prompt": "new"}}) == {"files": files}
    assert (tmp_path / "prompt.txt").read_text() == "new"


async def test_a_program_without_it_does_not_answer(opened):
    async with opened("behaves.py") as running:
        with pytest.raises(Exception, match="Method not found"):
            await running.program.call("write_texts", {"candidate": {}})
