"""A server of the contract whose program is made of commits, and a model that asks for changes of them."""

import base64
import hashlib
import re
import threading
from collections import Counter
from typing import Any

import orjson
from aiohttp import web

from gepa_client.gepa.litellm_model import Completion
from protocol import Candidate, Example
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to, commit_of, git_branch
from protocol.errors import MutationRejected, UnknownCandidate
from tests.gepa_client.scripted_server import ScriptedServer, chat_completion, ok

WORDS = ("red", "green", "blue", "pink", "grey", "teal")
CODE = {"steps": [], "texts": {"rules": "red"}, "parents": []}
"""The code of the first commit: the words it knows, and the texts it uses."""

COST = 0.25
DIFF = "--- a/steps\n+++ b/steps\n-old\n+new\n+newer\n"


def commit_id(code: dict[str, Any], name: str = "") -> str:
    return hashlib.sha1(orjson.dumps([code, name], option=orjson.OPT_SORT_KEYS)).hexdigest()  # noqa: S324 - as git


SEED = commit_id(CODE)


class CodeServer(ScriptedServer):
    """Its `repository` holds the code of each commit, its `branches` what mutations answered.

    A request is carried out word by word: `learn WORD` adds a step, `text NAME` adds a component, `drop NAME` removes
    one, and `break STAGE` is rejected there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repository = {SEED: CODE}
        self.branches: dict[str, Any] = {}
        self.capabilities = ["idempotency", "async", "cancel", "refs", "commits", "mutations"]
        self.seed_candidate = {GIT_BRANCH: git_branch("main", SEED), "rules": "red", ADDED_COMPONENTS: "{}"}
        self.limits["max_concurrency"] = 5
        self.evaluate_one = self._score
        self.replies = {
            "apply_mutation": self._mutate,
            "outline_code": lambda params: {"outline": f"steps: {self._code(params['candidate'])['steps']}"},
            "import_commits": self._import,
            "make_reflective_dataset": self._records,
        }
        self.made: Counter[str] = Counter()

    def _code(self, candidate: Candidate) -> dict[str, Any]:
        commit = commit_of(candidate)
        if commit not in self.repository:
            raise UnknownCandidate(commit=commit)
        found: dict[str, Any] = self.repository[commit]
        return found

    def _used(self, candidate: Candidate) -> dict[str, str]:
        given = {**added_to(candidate), **candidate}
        return {name: given.get(name, text) for name, text in self._code(candidate)["texts"].items()}

    def _score(self, candidate: dict[str, str], example: Example, _traced: bool) -> dict[str, Any]:
        row: Any = example.data or self.rows[example.split or ""][int(example.id)]
        number = row["n"]
        known = {*self._code(candidate)["steps"], *" ".join(self._used(candidate).values()).split()}
        found = WORDS[number % len(WORDS)] in known
        return ok(0.75 + number / 1000 if found else 0.25, output=[number, found])

    def _records(self, params: dict[str, Any]) -> dict[str, Any]:
        used = {GIT_BRANCH, *self._used(params["candidate"])}
        unknown = [name for name in params["components_to_update"] if name not in used]
        assert not unknown, unknown
        shown = [{"Feedback": f"{result['output']}"} for result in params["eval_batch"]["results"]]
        return {"dataset": dict.fromkeys(params["components_to_update"], shown)}

    def _import(self, params: dict[str, Any]) -> dict[str, Any]:
        commits = []
        for bundle in params["bundles"]:
            commit, code = orjson.loads(base64.b64decode(bundle))
            assert all(parent in self.repository for parent in code["parents"])
            self.repository[commit] = code
            commits.append(commit)
        return {"commits": commits}

    def _mutate(self, params: dict[str, Any]) -> dict[str, Any]:
        branch = f"evolve/{params['name']['run']}/{params['name']['number']}"
        if branch in self.branches:  # what was made once is found again
            found: dict[str, Any] = self.branches[branch]
            return found
        self.made[branch] += 1
        candidate, mutation = params["candidate"], params["mutation"]
        parent = self._code(candidate)
        code: dict[str, Any] = {"steps": [*parent["steps"]], "texts": {**parent["texts"]}, "parents": []}
        code["parents"] = [commit_of(candidate)]
        if mutation["kind"] == "merge":
            other = self._code(mutation["other"])
            code["parents"].append(commit_of(mutation["other"]))
            code["steps"] = list(dict.fromkeys(code["steps"] + other["steps"]))
            code["texts"] |= other["texts"]
        else:
            _carry_out(mutation.get("request", ""), code)
        commit = commit_id(code, branch)
        self.repository[commit] = code
        known = {*candidate, *added_to(candidate)}
        fresh = {name: text for name, text in code["texts"].items() if name not in known}
        answer = {
            "candidate": {
                **candidate,
                GIT_BRANCH: git_branch(branch, commit),
                ADDED_COMPONENTS: added_components({**added_to(candidate), **fresh}),
            },
            "commit": commit,
            "parent": code["parents"][0],
            "branch": branch,
            "diff": DIFF,
            "files": ["steps"],
            "summary": "done",
            "bundle": base64.b64encode(orjson.dumps([commit, code])).decode(),
            "usage": {"cost_usd": COST},
            "components_added": list(fresh),
            "components_removed": [name for name in parent["texts"] if name not in code["texts"]],
        }
        self.branches[branch] = answer
        return answer


def _carry_out(request: str, code: dict[str, Any]) -> None:
    words = request.split()
    for verb, what in zip(words[::2], words[1::2], strict=True):
        if verb == "break":
            raise MutationRejected(
                "rejected",
                stage=what,
                reason=f"{what} reports a failure",
                log_tail="the last line",
                usage={"cost_usd": COST},
            )
        if verb == "learn":
            code["steps"].append(what)
        elif verb == "text":
            code["texts"][what] = f"text of {what}"
        elif verb == "drop":
            code["texts"].pop(what, None)


class Model:
    """Answers a prompt by a rule of the prompt's own text alone; `asked` counts the prompts."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def complete(self, prompt: Any) -> Completion:
        with self._lock:
            self.asked[prompt] += 1
        draw = int(hashlib.sha256(prompt.encode()).hexdigest(), 16)
        missed = re.findall(r"\[(\d+), False\]", prompt) or ["0"]
        word = WORDS[int(missed[draw % len(missed)]) % len(WORDS)]
        if "change request" in prompt:
            learn = f"learn {word}"
            requests = (
                learn,
                learn,
                f"{learn} text extra{draw % 3}",
                f"{learn} drop rules",
                "break check",
                "break agent",
            )
            text = f"Location: steps\n{requests[draw // 7 % len(requests)]}"
        else:
            text = f"{prompt.split('```')[1].strip()} {word}"
        return Completion(f"```\n{text}\n```", 0.5, 1, 1)

    async def serve(self, request: web.Request) -> web.Response:
        """The same over the chat completions API."""
        body = await request.json()
        text = self.complete(body["messages"][0]["content"]).text
        return chat_completion(body["model"], text)
