"""Connected repositories, the versions of programs that jobs made, and which of them is active."""

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import Field

from gepa_client.certificate.verdict import Verdict
from gepa_service.records import Record, new_id, now

OWN_IDS = "program_"
"""How the ids begin that the service gives to versions."""

PROGRAM_JSON = "program.json"
"""The file among a program's own that holds what it saved of itself."""

SAVED_PROGRAM = "--saved-program-json-path"
"""The flag of `evolverpc serve` that names the file with the saved program."""


class Repository(Record):
    """A connected repository: the `client_id` of requests. `installation_id`: of the GitHub App, for a private one."""

    kind: ClassVar[str] = "repository"
    indexed: ClassVar[tuple[str, ...]] = ("repo_url", "installation_id")

    repo_url: str
    installation_id: str | None = None
    status: Literal["connected", "unreachable", "suspended"] = "connected"
    detail: str | None = None
    default_branch: str | None = None
    head: str | None = None
    """The commit of the default branch when it was last looked at."""


class Installation(Record):
    """An installation of the GitHub App that a member of the tenant has proved to manage. `id`: GitHub's number."""

    kind: ClassVar[str] = "installation"
    indexed: ClassVar[tuple[str, ...]] = ("installation_id",)

    installation_id: str
    account: str
    suspended: bool = False


class SeenDelivery(Record):
    """A webhook of GitHub that was processed. `id`: derived from its delivery id, so that a second one is refused.

    `day`: when it came, by which old ones are removed.
    """

    kind: ClassVar[str] = "seen_delivery"
    indexed: ClassVar[tuple[str, ...]] = ("day",)

    day: str = Field(default_factory=lambda: day_of(now()))


def day_of(moment: datetime) -> str:
    """Return the day of a moment, such as `2026-01-31`."""
    return f"{moment:%Y-%m-%d}"


class Delivery(Record):
    """A version that was delivered as a pull request. `id`: the version's; one of each."""

    kind: ClassVar[str] = "delivery"

    branch: str
    commit: str
    url: str | None = None
    actor: str


class Program(Record):
    """A version of a program: what a completed job found or a step made. `id`: the `program_id`; `job_id`: of either.

    `parents`: versions it was made from. `line`: which program it is a version of: repository, folder and name; one
    version of a line is active. `texts`: by component. `program_json`: what the program's `finalize` wrote, if it did;
    `program_json_path`: the file that it is in, from the program's folder.
    `certificate`: as `certificate.json`; `verdict`: its verdict, None without one; `leaks`: whether leaks
    weaken that, as of test rows that are training rows too. `made`: sorts by time, as chosen ids do not.
    """

    kind: ClassVar[str] = "program"
    indexed: ClassVar[tuple[str, ...]] = ("line", "job_id", "verdict", "client_id")
    ordered: ClassVar[str] = "made"

    made: str = Field(default_factory=lambda: new_id("made"))
    line: str
    job_id: str
    client_id: str | None = None
    repo_url: str
    parents: tuple[str, ...] = ()
    texts: dict[str, str]
    program_json: dict[str, Any] | None = None
    program_json_path: str | None = None
    branch: str | None = None
    commit: str | None = None
    base_commit: str | None = None
    diff: str | None = None
    patch: str | None = None
    """The change from `base_commit` to `commit` as one commit of `git format-patch`.

    None if no code changed; if `commit` is not None, it did, and is too large or cannot be read.
    """
    bundles: tuple[str, ...] = ()
    """The commits after `base_commit`, in base64, parents first; none if no code changed, or as of `patch`."""
    score: float | None = None
    seed_score: float | None = None
    certificate: dict[str, Any] | None = None
    verdict: Verdict | None = None
    leaks: bool = False

    @property
    def is_of_step(self) -> bool:
        """Whether a step made it, and no job."""
        return self.job_id.startswith("step_")


def branch_of(program_id: str) -> str:
    """Return the branch of a delivered version: `program_{id}`."""
    return OWN_IDS + program_id.removeprefix(OWN_IDS)


class Promotion(Record):
    """One change of the active version of a line, which the last one names.

    `number`: how many came before it. `id`: follows from the line and the number, so that of two at once one is stored.
    `program_id`: None if no version is active after it. `forced`: the reason to promote a version that no
    certificate calls improved. `rolled_back`: it was a rollback.
    """

    kind: ClassVar[str] = "promotion"
    indexed: ClassVar[tuple[str, ...]] = ("line", "program_id")

    line: str
    program_id: str | None
    number: int = 0
    before: str | None = None
    actor: str
    forced: str | None = None
    rolled_back: bool = False
