"""The version that a completed job made: its code as a patch, and the versions that it was made from."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gepa_client.analysis.mutation_outcomes import code_history
from gepa_client.journal.store import open_store
from gepa_client.page.run_list import runs
from gepa_service.jobs.kept_results import progress_of
from gepa_service.jobs.new_version import program_of, with_code
from gepa_service.model.program_version import Delivery, Program
from gepa_service.model.work import Work
from gepa_service.records import RecordStore
from gepa_service.repositories.repository_access import RepositoryPolicy
from tests.gepa_client.stored_code import StoredCode, git
from tests.gepa_client.stored_run import Made
from tests.gepa_service.serving import service_of


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_the_patch_of_a_version_makes_its_code_from_the_commit_that_its_job_began_with(
    records: RecordStore, tmp_path: Path, encoding: str
) -> None:
    also = {"notes.txt": "grün\n" if encoding == "utf-8" else "gr\udcfcn\n"}
    code = StoredCode(tmp_path / "code", also=also)
    code.into(tmp_path / "journals.db")
    user = str(code.user)
    with closing(open_store(str(tmp_path / "journals.db"))) as store:
        access = replace(service_of(records, ""), repositories=RepositoryPolicy(allow_local=True))
        job = Work(tenant="acme", id=code.run_id, repo_url=user, created_by="key:test")
        first = program_of(store, records, job, None)
        earlier = first.model_copy(update={"id": "program_earlier", "commit": None, "base_commit": None})
        records.insert(earlier)
        records.insert(Delivery(tenant="acme", id=earlier.id, branch="b", commit=code.seed, actor="key:test"))
        made = program_of(store, records, job, None)
        assert made.commit is not None
        bundles = code_history(store, job.id, store.candidates(job.id)).bundles(made.commit)
        program = with_code(made, bundles, lambda folder, commit: access.fetch(job, folder, commit))
    assert (program.base_commit, program.commit, program.branch) == (code.seed, code.commits[3], code.branch(3))
    assert program.parents == (earlier.id,)
    assert "-    return text" in (program.diff or "")
    assert program.patch is not None
    git(code.user, "am", "--quiet", given=program.patch.encode())
    assert git(code.user, "rev-parse", "HEAD^{tree}") == git(code.server, "rev-parse", f"{code.commits[3]}^{{tree}}")
    assert isinstance(Program.model_validate_json(program.model_dump_json()), Program)


def test_the_scores_of_a_version_a_job_and_a_listed_run_are_of_the_same_rows_as_those_of_the_run(
    records: RecordStore, tmp_path: Path
) -> None:
    made = Made()
    run = made.run()
    assert run.best is not None
    compared = replace(
        run, best={**run.best, "score": 0.61}, counters={**run.counters, "seed_score": 0.52}
    )  # on all compared rows; the candidates have those of the search
    with closing(open_store(str(tmp_path / "journals.db"))) as store:
        store.create(compared, made.rows())
        kept = store.run(run.id)
        job = Work(tenant="acme", id=run.id, repo_url="/code", created_by="key:test")
        version, progress, [listed] = program_of(store, records, job, None), progress_of(store, kept), runs(store).runs
    assert (version.seed_score, version.score) == (0.52, 0.61)
    assert (progress.seed_score, progress.best_score) == (0.52, 0.61)
    assert (listed.figures["seed"], listed.figures["best"]) == ("0.52", "0.61")
