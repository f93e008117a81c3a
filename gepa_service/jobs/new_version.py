"""The version of a program that a completed job made, and the change of its code as a diff and a patch."""

import asyncio
import base64
import itertools
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evolverpc_common.evolved_commits import SERVICE_AUTHOR
from gepa_client.analysis.ties import best_candidate
from gepa_client.certificate.certificate import certify
from gepa_client.errors import ClientError
from gepa_client.evolution.checkout import LocalCheckout
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import Store
from gepa_service.model.program_version import SAVED_PROGRAM, Delivery, Program
from gepa_service.model.work import Work
from gepa_service.records import RecordStore
from protocol.code import code_at
from sandbox_runtime.source.remote_git import git

LARGEST_DIFF, LARGEST_PATCH = 2 << 20, 6 << 20
"""Characters of what a record holds; a larger one is left out."""

SUBJECT = "Change the code as GEPA found best"


def program_of(store: Store, records: RecordStore, job: Work, saved: dict[str, Any] | None) -> Program:
    """Return the version, without the change of its code, see `with_code`.

    Its id follows from the job's, so that it is written once if two attempts complete the job.

    `saved`: what the program saved of itself at its end.

    Raises:
        JournalError: the run cannot be read. RecordsUnavailable: earlier versions cannot be.
    """
    run = store.run(job.id)
    candidates = store.candidates(run.id)
    chosen = best_candidate(store, run.id, candidates)
    try:
        certificate = certify(store, run)
    except ClientError:  # the run has no test rows, or was not improved: the report has the reason
        certificate = None
    texts = {} if chosen is None else dict(chosen.texts)
    base = next((code_at(each.texts)[1] for each in candidates if each.index == 0), None)
    branch, commit = code_at(texts)
    if base is None or commit in (None, base):  # its code is that of the seed
        base, branch, commit = run.config.get("ref"), None, None
    name = run.program or str(job.settings.get("name") or "program")
    line = f"{job.repo_url} {name}"
    return Program(
        tenant=job.tenant,
        id="program" + job.id.removeprefix("job"),
        line=line,
        parents=_parents(records, job.tenant, line, base),
        job_id=job.id,
        client_id=job.client_id,
        repo_url=job.repo_url,
        texts=texts,
        program_json=saved,
        program_json_path=saved_program_path(job),
        branch=branch,
        commit=commit,
        base_commit=base,
        score=(run.best or {}).get("score"),
        seed_score=seed_score(store, run),
        certificate=None if certificate is None else certificate.model_dump(mode="json"),
        verdict=None if certificate is None else certificate.verdict,
        leaks=certificate is not None and certificate.leaks.any,
    )


def _parents(records: RecordStore, tenant: str, line: str, base: str | None) -> tuple[str, ...]:
    """Return the versions of a line whose code the job began with: by their commit, or by the delivered one."""
    found = []
    for known in records.every(Program, tenant, {"line": line}) if base is not None else ():
        delivered = records.get(Delivery, tenant, known.id)
        if base in (known.commit, delivered.commit if delivered is not None else None):
            found.append(known.id)
    return tuple(found)


def saved_program_path(work: Work) -> str | None:
    """Return the file with the saved program that the work was given, from the program's folder."""
    flags = shlex.split(work.settings.get("server_args", ""))
    given = [path for flag, path in itertools.pairwise(flags) if flag == SAVED_PROGRAM]
    return given[-1] if given else None


def with_code(program: Program, bundles: Sequence[bytes], fetch: Callable[[Path, str], None]) -> Program:
    """Return a version with the change of its code, if there is one, which the bundles hold, parents first. Blocks.

    No file is checked out. `fetch`: brings a commit of the program's repository to a folder's. A change that is too
    large is left out.

    Raises:
        GitError, SandboxError: git failed. What `fetch` raises.
    """
    base, commit = program.base_commit, program.commit
    if base is None or commit is None:
        return program
    with tempfile.TemporaryDirectory(prefix="gepa-version-") as name:
        folder = Path(name)
        asyncio.run(git("init", "--quiet", "--template=", ".", folder=folder))
        fetch(folder, base)
        LocalCheckout(folder).make_branch(program.branch or f"evolve/{program.job_id}/0", commit, bundles)
        diff, patch = asyncio.run(_change(folder, base, commit))
    kept = tuple(base64.b64encode(each).decode() for each in bundles)
    is_small = sum(map(len, kept)) <= LARGEST_PATCH
    return program.model_copy(update={"diff": diff, "patch": patch, "bundles": kept if is_small else ()})


async def _change(folder: Path, base: str, commit: str) -> tuple[str | None, str | None]:
    as_text = ("--no-color", "--no-ext-diff", "--no-textconv")
    diff = (await git("diff", *as_text, base, commit, "--", folder=folder)).decode("utf-8", "replace")
    tree = (await git("rev-parse", f"{commit}^{{tree}}", folder=folder)).decode().strip()
    whole = await git("commit-tree", tree, "-p", base, "-m", SUBJECT, folder=folder, settings=SERVICE_AUTHOR)
    asked = ("format-patch", "--stdout", "--binary", "--no-signature", *as_text, "-1", whole.decode().strip())
    try:
        patch = (await git(*asked, folder=folder)).decode("utf-8")
    except UnicodeDecodeError:  # a file in another encoding: every file as a binary patch
        attributes = folder / ".git" / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -diff\n", encoding="utf-8")
        patch = (await git(*asked, folder=folder)).decode("utf-8")
    return diff if len(diff) <= LARGEST_DIFF else None, patch if len(patch) <= LARGEST_PATCH else None
