"""The digest of a program: the same for the same code and settings, another when either changes, and nothing else."""

import shutil
import sys
from pathlib import Path

import pytest

from rpc_server.program.open_program import open_program
from rpc_server.program.program_digest import digest_settings
from rpc_server.settings import Settings

MAIN = (
    "import helper\nfrom parts import deep\nseed_candidate = {'prompt': 'x'}\ndef run(e, c):\n    return helper.ONE\n"
)
FILES = {
    "main.py": MAIN,
    "helper.py": "ONE = 1\n",
    "parts/__init__.py": "",
    "parts/deep.py": "TWO = 2\n",
    "unused.py": "THREE = 3\n",
    "notes.txt": "nothing\n",
}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "project", FILES)
    return tmp_path / "project"


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def digest(folder, **settings):
    """Return a program's digest after a start of its own."""
    if "command" not in settings:
        own = {} if "adapter" in settings else {"program": "main.py", "workers": 1}
        settings = {"python": Path(sys.executable), **own, **settings}
    program = await open_program(Settings(root=folder, **settings))
    await program.close()
    return program.info.digest


async def test_the_same_code_gives_the_same_digest_in_each_place_and_however_it_is_served(folder, tmp_path):
    first = await digest(folder, env={"API_KEY": "one"})
    served = {"example_timeout_s": 3.0, "workers": 2, "port": 8123, "max_batch_size": 7, "name": "other"}
    assert await digest(folder, program=str(folder / "main.py"), env={"API_KEY": "two"}, **served) == first
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    assert await digest(tmp_path / "copy", env={"API_KEY": "three"}) == first


async def test_an_edited_module_of_the_program_gives_another_and_so_does_another_setting(folder):
    first = await digest(folder)
    for given in ({"env": {"MODEL": "b"}}, {"seed_candidate": {"prompt": "y"}}):
        assert await digest(folder, **given) != first
    for name, changes in (("unused.py", False), ("parts/deep.py", True)):
        with (folder / name).open("a") as file:
            file.write("# edited\n")
        assert (await digest(folder) != first) is changes


PROGRAM = {"program": "main.py"}
DSPY = {"kind": "dspy", "program": "codes.Codes", "metric": "codes.metric"}


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        (PROGRAM, {"env": {"MODEL": "b"}}),
        (PROGRAM, {"model_hosts": ("127.0.0.1:8000",)}),
        (PROGRAM, {"datasets": {"val": Path("rows.jsonl")}}),
        (DSPY, {"metric": "codes.other"}),
        *((DSPY, {"dspy": {name: True}}) for name in ("field_descriptions", "demos", "add_format_failure_as_feedback")),
        (DSPY, {"dspy": {"seed": 1}}),
    ],
    ids=str,
)
def test_a_setting_that_changes_what_it_does_is_digested(given, changed):
    assert digest_settings(Settings(**given | changed), None) != digest_settings(Settings(**given), None)
    assert digest_settings(Settings(**given, concurrency=3), None) == digest_settings(Settings(**given), None)


async def test_an_adapter_counts_with_its_arguments_and_what_it_imports_when_it_is_made(folder):
    lazy = "class Adapter:\n    def __init__(self, **given):\n        import helper\n"
    methods = "    def evaluate(self, *a, **k): pass\n    def make_reflective_dataset(self, *a): pass\n"
    write(folder, {"mine.py": lazy + methods})
    given = {"adapter": "mine:Adapter", "seed_candidate": {"a": "b"}}
    first = await digest(folder, **given)
    assert await digest(folder, **given) == first
    assert await digest(folder, **given, adapter_args={"k": 5}) != first
    (folder / "helper.py").write_text("ONE = 11\n")
    assert await digest(folder, **given) != first


COMMAND = (sys.executable, str(Path(__file__).parent / "data" / "stdio.py"))


async def test_a_command_counts_with_its_words_and_the_files_they_name(folder):
    (folder / "rules.json").write_text("{}")
    commands = [(*COMMAND, *words) for words in (("rules.json",), ("--rules=rules.json",), ("rules.json", "more"))]
    before = [await digest(folder, command=command) for command in commands]
    assert len(set(before)) == 3
    assert await digest(folder, command=commands[0]) == before[0]
    (folder / "rules.json").write_text("{}\n")
    assert not {await digest(folder, command=command) for command in commands[:2]} & set(before)
