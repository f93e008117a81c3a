"""The programs in the pages work unchanged."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gepa
import pytest

from gepa_client import RemoteAdapter
from gepa_client.cli.model_server import ModelServer
from sandbox_runtime import ServerEndpoint, running_server
from tests.docs import pages
from tests.sandbox_runtime.environments.wheels import make_wheel
from tests.sandbox_runtime.source.repositories import commit
from tests.support.forked_client import ForkServer
from tests.support.forked_commands import write_commands
from tests.support.http_servers import run_in_threadpool

PACKAGE = pages.ROOT / "clients" / "typescript"
TSC = PACKAGE / "node_modules" / ".bin" / "tsc"
ROWS = [{"text": "I was charged twice", "label": "billing"}, {"text": "It crashes", "label": "bug"}]
needs_typescript = pytest.mark.skipif(
    shutil.which("node") is None or not TSC.exists(), reason="the TypeScript package is not set up"
)

PYTHON_CLIENT = """
from types import SimpleNamespace as Some

class OpenAI:
    def __init__(self):
        self.chat = Some(completions=self)
    def create(self, *, model, messages):
        return Some(choices=[Some(message=Some(content=f" {messages[0]['content']}\\n"))])
"""
"""Stands for the package `openai`: the model's answer is the candidate's prompt."""

TYPESCRIPT_CLIENT = """
type Message = { role: "system" | "user"; content: string };
export default class OpenAI {
  chat = {
    completions: {
      create: async ({ messages }: { model: string; messages: Message[] }, { signal }: { signal: AbortSignal }) => {
        signal.throwIfAborted();
        return { choices: [{ message: { content: messages[0]?.content as string | null } }] };
      },
    },
  };
}
"""


def optimized(endpoint: ServerEndpoint, tmp_path: Path) -> list[float]:
    """Run the page's own snippet against a program; the reflection model always writes `billing`."""
    (tmp_path / "token").write_text(endpoint.token)
    snippet = pages.block("docs/guides/python.md", "import gepa").text
    snippet = snippet.replace("http://127.0.0.1:8000", endpoint.url).replace('"FILE"', repr(f"{tmp_path}/token"))
    snippet = snippet.replace('"openai/gpt-5"', "model").replace("max_metric_calls=500", "max_metric_calls=8")
    names: dict[str, object] = {"rows": ROWS, "model": lambda _prompt: "```\nbilling\n```"}
    exec(snippet, names)  # noqa: S102  the page's own code
    result = names["result"]
    assert isinstance(result, gepa.GEPAResult)
    return result.val_aggregate_scores


def test_the_python_program_is_optimized(tmp_path: Path, fork_server: ForkServer) -> None:
    (tmp_path / "program.py").write_text(pages.block("README.md", "# program.py").text)
    (tmp_path / "openai.py").write_text(PYTHON_CLIENT)
    with fork_server.running_server("--program", "program.py", cwd=tmp_path) as endpoint:
        assert optimized(endpoint, tmp_path) == [0.0, 0.5]
        with RemoteAdapter(endpoint.url, token=endpoint.token) as adapter:
            traced = adapter.evaluate(ROWS[:1], adapter.seed_candidate, capture_traces=True)
            assert traced.trajectories is not None
            assert "expected billing" in traced.trajectories[0].result["feedback"]
            evaluators: dict[str, Any] = {"adapter": adapter}
            exec(pages.block("docs/guides/python.md", "def evaluator").text, evaluators)  # noqa: S102  the page's own code
            billing = {"prompt": "billing"}
            assert evaluators["evaluator"](billing, ROWS[0]) == (1.0, {"Output": "billing", "Feedback": "right"})
            pairs = [(billing, ROWS[0]), (billing, ROWS[1])]
            assert [score for score, _ in evaluators["batch_evaluator"](pairs)] == [1.0, 0.0]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed: apt install bubblewrap")
def test_the_python_program_uses_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wheel(tmp_path / "wheels", "httpx", "1.2", {"httpx.py": "__version__ = '1.2'"})
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program = pages.block("README.md", "# program.py").text
    files = {"program.py": program, "openai.py": PYTHON_CLIENT, "gepa.toml": 'program = "program.py"\n'}
    commit(tmp_path / "program", files)
    snippet = pages.block("docs/guides/sandboxes.md", "import asyncio").text
    exec(snippet.replace("path/to/program", str(tmp_path / "program")), {})  # noqa: S102  the page's own code
    serving, lines, installed = capsys.readouterr().out.split("\n", 2)
    assert serving.startswith("serving at http+unix://")
    assert lines == f"status 0 lines {len(program.splitlines())}"
    assert installed.strip() == "installed 1.2"


def test_the_python_program_of_several_components_has_the_records_on_its_page(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "team.py").write_text(pages.block("docs/guides/python.md", "# team.py").text)
    (tmp_path / "openai.py").write_text(PYTHON_CLIENT)
    [shown] = [body for _, kind, body in pages.FENCE.findall(pages.text("docs/guides/python.md")) if kind == "json"]
    summarize = {"summarize": "A customer was charged twice."}
    wrong, unparsed = summarize | {"route": '{"team": "shipping"}'}, summarize | {"route": "shipping, I think"}
    records = []
    with (
        fork_server.running_server("--program", "team.py", "--python", sys.executable, cwd=tmp_path) as endpoint,
        RemoteAdapter(endpoint.url, token=endpoint.token) as adapter,
    ):
        for candidate in (wrong, unparsed):
            traced = adapter.evaluate(ROWS[:1], candidate, capture_traces=True)
            assert traced.scores == [0.0]
            records.append(adapter.make_reflective_dataset(candidate, traced, ["summarize", "route"]))
    assert records[0] == json.loads(shown)
    [record] = records[1]["route"]
    assert "shipping, I think" in record["Generated Outputs"]
    assert record["Feedback"] == (
        'Your output failed to parse. Follow this structure:\n{"team": "billing", "shipping" or "other"}'
    )


RULES_ROWS = [
    {"text": "Refund me", "label": "billing"},
    {"text": "You charged me twice", "label": "billing"},
    {"text": "It crashes", "label": "other"},
]


@pytest.mark.parametrize(
    ("page", "program", "first"),
    [
        pytest.param("python", "rules.py", "evolverpc optimize", marks=pytest.mark.long),
        ("other-languages", "router.pl", "evolverpc check"),
    ],
)
def test_a_guides_rules_improve_by_its_commands(
    tmp_path: Path, fork_server: ForkServer, page: str, program: str, first: str
) -> None:
    page = f"docs/guides/{page}.md"
    (tmp_path / program).write_text(pages.block(page, f"# {program}").text)
    rows, _, serve = pages.block(page, "cat > rows.jsonl").text.partition("evolverpc serve ")
    subprocess.run(["sh", "-c", rows], cwd=tmp_path, check=True)
    served = shlex.split(serve.replace("--port 8000 --token-file token", "").replace("rules.py", "--program rules.py"))
    proposed = "```\nrefund billing\ncharged billing\nparcel shipping\n```"
    with (
        run_in_threadpool(ModelServer(lambda _: proposed)) as model,
        fork_server.running_server(*served, cwd=tmp_path) as endpoint,
    ):
        environment = os.environ | model.variables | {"GEPA_TOKEN": endpoint.token}
        for line in pages.block(page, f"{first} http://127.0.0.1:8000 --token-file token --trainset").commands():
            line = line.replace("http://127.0.0.1:8000 --token-file token", endpoint.url)
            status, stdout, stderr = fork_server.run(shlex.split(line)[1:], folder=tmp_path, environment=environment)
            assert status == 0, (stdout + stderr).decode()
    shown = re.search(r"ends with `(.*?)`", pages.text(page))
    assert shown is not None
    assert stdout.decode().splitlines()[-1].startswith(shown[1])


def test_the_perl_program_has_forty_lines_and_answers_those_of_the_protocols_page() -> None:
    program = pages.block("docs/guides/other-languages.md", "# router.pl").text
    assert len(program.splitlines()) <= 40
    page = pages.text("docs/protocol.md")
    asked, shown = ("\n".join(re.findall(rf"^{side} (.+)", page, re.MULTILINE)) for side in "><")
    done = subprocess.run(["perl", "-e", program], input=asked, capture_output=True, text=True, timeout=30, check=True)
    assert [*map(json.loads, done.stdout.splitlines())] == [*map(json.loads, shown.splitlines())]
    assert done.stdout


@pytest.mark.long
def test_the_call_in_python_improves_the_rules(tmp_path: Path) -> None:
    for name in ("rules.py", "optimize_rules.py"):
        (tmp_path / name).write_text(pages.block("docs/guides/python.md", f"# {name}").text)
    command = [sys.executable, "optimize_rules.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1.0 {'words': 'refund invoice i was charged twice'}"


def test_the_call_in_the_readme_shows_what_the_program_learnt(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(pages.block("README.md", "# program.py").text)
    (tmp_path / "openai.py").write_text(PYTHON_CLIENT)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    call = pages.block("README.md", "import evolverpc").text
    assert 'reflection_lm="openai/gpt-5"' in call
    call = call.replace('reflection_lm="openai/gpt-5"', 'check="off", propose=lambda *_: {"prompt": "billing"}')
    (tmp_path / "call.py").write_text(call.replace("=300", "=20"))
    done = subprocess.run([sys.executable, "call.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "-Which team should answer this message? Answer with one word.",
        "+billing",
    ]


def compile_strictly(folder: Path, **programs: str) -> None:
    """Compile programs, named without `.ts`, beside the package `evolverpc` and a stand-in for `openai`."""
    openai = folder / "node_modules" / "openai"
    openai.mkdir(parents=True)
    (openai / "index.ts").write_text(TYPESCRIPT_CLIENT)
    (openai / "package.json").write_text('{"name": "openai", "type": "module", "exports": "./index.js"}')
    (folder / "node_modules" / "evolverpc").symlink_to(PACKAGE)
    (folder / "package.json").write_text('{"type": "module"}')
    for name, text in programs.items():
        (folder / f"{name}.ts").write_text(text)
    options = ("--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022", "--types", "")
    names = ("node_modules/openai/index.ts", *(f"{name}.ts" for name in programs))
    compiled = subprocess.run(
        [str(TSC), *options, *names], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert compiled.returncode == 0, compiled.stdout
    (openai / "index.ts").unlink()


def of_guide(*names: str) -> dict[str, str]:
    """The programs of the guide about TypeScript, by these names without `.ts`."""
    return {name: pages.block("docs/guides/typescript.md", f"// {name}.ts").text for name in names}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with those programs of the guide that are tested in every run, compiled at once."""
    folder = tmp_path_factory.mktemp("compiled")
    loads = pages.block("docs/guides/typescript.md", "import { loadCandidate }").text
    use = f"{loads}\nconsole.log(JSON.stringify([candidate, answer]));\n"
    compile_strictly(folder, use=use, **of_guide("rules", "serve", "optimize"))
    return folder


@needs_typescript
def test_the_typescript_rules_compile_strictly_and_improve_without_a_model(
    compiled: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    with running_server(["node", "serve.js"], cwd=compiled) as endpoint:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RULES_ROWS))
        command = ["optimize", endpoint.url, "--trainset", "rows.jsonl", "--max-metric-calls", "30", "--output", "run"]
        environment = os.environ | {"GEPA_TOKEN": endpoint.token}
        status, stdout, stderr = fork_server.run(command, folder=tmp_path, environment=environment)
    assert status == 0, (stdout + stderr).decode()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["seed_score"], result["best_score"]) == (pytest.approx(2 / 3), 1.0)


@pytest.mark.long
@needs_typescript
def test_the_typescript_rules_improve_in_one_call_without_a_model(tmp_path: Path, fork_server: ForkServer) -> None:
    compile_strictly(tmp_path, **of_guide("rules", "improve"))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RULES_ROWS))
    environment = os.environ | {"GEPA_CLIENT": str(write_commands(fork_server, tmp_path))}
    done = subprocess.run(
        ["node", "improve.js"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"0\.6+7? -> 1: refund invoice .*\n", done.stdout), done.stdout


@needs_typescript
def test_both_languages_load_the_result_of_a_run(compiled: Path, tmp_path: Path) -> None:
    texts = {"words": "refund invoice charged"}
    (tmp_path / "best_candidate.json").write_text(json.dumps(texts))
    loaded = pages.block("docs/guides/python.md", "import evolverpc").text
    (tmp_path / "rules.py").write_text(pages.block("docs/guides/python.md", "# rules.py").text)
    (tmp_path / "use.py").write_text(f"import json\n{loaded}\nprint(json.dumps([candidate, answer]))\n")
    for command in ([sys.executable, "use.py"], ["node", compiled / "use.js"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(done.stdout) == [texts, "billing"]


def test_the_same_program_stands_on_each_page() -> None:
    example = pages.ROOT / "examples" / "quickstart"
    for page, name in (
        ("README.md", "program.py"),
        ("docs/quickstart.md", "with_openai.py"),
        ("docs/quickstart.md", "with_anthropic.py"),
    ):
        path = example / name.replace("program.py", "with_openai.py")
        shown = pages.block(page, f"# {name}").text.removeprefix(f"# {name}\n")
        assert shown == path.read_text(encoding="utf-8").partition("\n\n")[2], f"{page}: {name}"
    assert pages.block("README.md", "// optimize.ts").text == of_guide("optimize")["optimize"]


@pytest.mark.long
@needs_typescript
def test_the_typescript_program_compiles_strictly_and_is_optimized(tmp_path: Path) -> None:
    compile_strictly(tmp_path, **of_guide("answer", "program"))
    with running_server(["node", "program.js"], cwd=tmp_path) as endpoint:
        assert optimized(endpoint, tmp_path) == [0.0, 0.5]


@needs_typescript
def test_the_typescript_program_optimizes_itself(compiled: Path, tmp_path: Path, fork_server: ForkServer) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    program = (compiled / "optimize.js").read_text()
    program = program.replace('reflectionLm: "openai/gpt-5"', 'propose: () => ({ prompt: "billing" })')
    (compiled / "itself.js").write_text(program.replace("maxMetricCalls: 300", 'maxMetricCalls: 8, check: "off"'))
    environment = os.environ | {"GEPA_CLIENT": str(write_commands(fork_server, tmp_path))}
    command = ["node", str(compiled / "itself.js")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "0 -> 0.5: billing\n"), done.stderr


@pytest.mark.long
@needs_typescript
def test_the_typescript_program_of_several_components_has_records_of_its_steps(tmp_path: Path) -> None:
    compile_strictly(tmp_path, **of_guide("team"))
    routes = {"not JSON": 'I would answer {"team"}', "right": '{"team": "billing"}'}
    with (
        running_server(["node", "team.js"], cwd=tmp_path) as endpoint,
        RemoteAdapter(endpoint.url, token=endpoint.token) as adapter,
    ):
        records = {}
        for name, route in routes.items():
            candidate = {"summarize": "charged twice", "route": route}
            traced = adapter.evaluate(ROWS[:1], candidate, capture_traces=True)
            assert traced.scores == [float(name == "right")]
            records[name] = adapter.make_reflective_dataset(candidate, traced, ["summarize", "route"])
    summarized = {
        "Inputs": {"text": ROWS[0]["text"]},
        "Generated Outputs": "charged twice",
        "Feedback": "the line must show that this is about billing",
    }
    right = {"Generated Outputs": "billing", "Feedback": "expected billing, got billing"}
    assert records["right"] == {"summarize": [summarized], "route": [{"Inputs": {"line": "charged twice"}, **right}]}
    [unparsed] = records["not JSON"]["route"]
    assert routes["not JSON"] in unparsed["Generated Outputs"]
    assert unparsed["Feedback"] == (
        'Your output failed to parse. Follow this structure:\n{"team": "billing", "shipping" or "other"}'
    )
