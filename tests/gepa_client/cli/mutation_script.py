"""A program whose code is changed by a scripted server, for tests of the commands that ask for it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, commit_of, git_branch
from tests.gepa_client.word_program import Script, rows

SEED, CHANGED = "1" * 40, "2" * 40
BRANCH = "evolve/by-hand-1f3a/0"
DIFF = "--- a/program.py\n+++ b/program.py\n@@ -1,2 +1,3 @@\n import re\n-print('no')\n+print('yes')\n+-- no header\n"
CAPABILITIES = ("idempotency", "async", "cancel", "datasets", "commits", "mutations")


@dataclass
class Evolving:
    """Rows score 0 with the code of `SEED` and 1 with that of `CHANGED`; a mutation waits for `may_finish`."""

    script: Script = field(init=False)
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)
    raises: Exception | None = None

    def __post_init__(self) -> None:
        self.script = Script(
            seed={"rules": "red", GIT_BRANCH: git_branch("main", SEED), ADDED_COMPONENTS: "{}"},
            datasets={"train": rows(9)},
            capabilities=CAPABILITIES,
            evaluate=self.scored,
            replies={"apply_mutation": self.mutated},
        )
        self.may_finish.set()

    def scored(self, row: dict[str, Any], candidate: dict[str, str]) -> dict[str, Any]:
        changed = commit_of(candidate) == CHANGED
        output = f"{row['text']} {'works' if changed else 'fails'}"
        return {"status": "ok", "score": float(changed), "output": output, "feedback": output, "seconds": 0.001}

    async def mutated(self, params: dict[str, Any]) -> dict[str, Any]:
        await self.may_finish.wait()
        if self.raises is not None:
            raise self.raises
        return {
            "candidate": params["candidate"] | {GIT_BRANCH: git_branch(BRANCH, CHANGED)},
            "commit": CHANGED,
            "parent": commit_of(params["candidate"]),
            "branch": BRANCH,
            "diff": DIFF,
            "files": ["program.py"],
            "summary": "it answers yes now",
            "usage": {"cost_usd": 0.0123, "input_tokens": 1200, "output_tokens": 300},
            "components_added": ["tone"],
            "bundle": "UEFDSw==",
        }

    @property
    def asked(self) -> dict[str, Any]:
        """The mutation that was asked for."""
        [params] = self.script.calls("apply_mutation")
        return dict(params["mutation"])
