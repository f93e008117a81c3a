"""The saved program: written when a run is over, the seed of the next, and where texts are written into code."""

import json
import subprocess

import pytest

from protocol.errors import ProgramFailed

RUN = {"id": "run", "metric_calls": 1, "candidates": 1, "seed_score": 0.0}


def finalize(running, **texts):
    params = {"best_candidate": running.seed | texts, "best_score": 1.0, "run": RUN}
    return running.program.call("finalize", params)


def loaded_instructions(python, project, path):
    """Return the instructions of `finish` after DSPy itself has loaded the file."""
    script = "import codes, sys; p = codes.Codes(); p.load(sys.argv[1]); print(p.finish.signature.instructions)"
    ended = subprocess.run([python, "-c", script, path], cwd=project, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


async def test_texts_and_the_best_program_are_written_which_dspy_loads_and_the_next_start_begins_from(
    opened, project, dspy_python
):
    settings = {"saved_program_json_path": "saved/best.json", "dspy": {"demos": True}}
    path = project / "saved" / "best.json"
    demos = '[{"word":"word3","found":"x","code":"ffca"}]'
    async with opened(**settings) as running:
        digest = running.program.info.digest
        answer = await running.program.call("write_texts", {"candidate": {"look": "word2 is afb3"}})
        assert answer == {"files": ["saved/best.json"]}
        saved = json.loads(path.read_text())
        assert saved["look"]["signature"]["instructions"] == "word2 is afb3"
        assert saved["finish"]["signature"]["instructions"] == "Finish the code."
        answer = await finalize(running, finish="word2 is afb3", **{"finish.demos": demos})
        assert answer == {"message": f"the best program is in {path}, for `program.load`"}
        assert [file.name for file in path.parent.iterdir()] == ["best.json"]
    assert loaded_instructions(dspy_python, project, path) == "word2 is afb3"
    async with opened(**settings) as running:
        assert running.seed["finish"] == "word2 is afb3"
        assert json.loads(running.seed["finish.demos"]) == json.loads(demos)
        assert running.program.info.digest != digest


async def test_without_a_path_it_is_program_json_and_no_other_file_is_overwritten(opened, project):
    path = project / "program.json"
    async with opened() as running:
        for text in ("first", "second"):
            await finalize(running, finish=text)
            assert json.loads(path.read_text())["finish"]["signature"]["instructions"] == text
        path.write_text('{"mine": true}')
        with pytest.raises(ProgramFailed, match=r"program\.json is no saved program: set `saved_program_json_path`"):
            await finalize(running, finish="third")
        assert path.read_text() == '{"mine": true}'
