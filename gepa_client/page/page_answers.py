"""What the server of the page answers when a part of a run is asked for."""

from pydantic import JsonValue

from gepa_client.analysis.explanation import Explanation
from gepa_client.analysis.proposals import ComparedRow, Excerpt, RowResult
from gepa_client.page.page_fact import Part


class RunListed(Part):
    """A run of the store. `curve`: metric calls, and the best score from there on, up to the last call."""

    run_id: str
    name: str | None
    status: str
    program: str | None
    created: str
    seed_score: float | None
    best_score: float | None
    candidates: int
    metric_calls: int | None
    cost: str
    curve: list[tuple[int, float]]
    settings: dict[str, JsonValue]


class RunList(Part):
    """All runs of the store, the newest first."""

    runs: list[RunListed]


class StepShown(Part):
    """A step of an example's run."""

    name: str
    component: str | None
    input: Excerpt | None
    output: Excerpt | None
    error: Excerpt | None
    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    steps: list["StepShown"]


class Cell(Part):
    """A candidate on a validation row. `no_steps`: why there are none. `seconds`, tokens, cost: of the attempt."""

    row: str
    input: Excerpt | None
    result: RowResult | None
    number: int | None
    seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    steps: list[StepShown]
    no_steps: str | None


class AnswerUsage(Part):
    """What an answer took. `again`: why the answer before it could not be used; None for the first one."""

    again: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None


class PromptShown(Part):
    """A prompt for new texts and its answer. `model`: None if the program proposed.

    `prompt`: the whole prompt, None if it cannot be made again from the journal. `hints`: those of users in it.
    `records`: what it was made from, a part of them if they are many or long. `usage`: of all answers to it; one that
    has the texts of several components is at the first of them.
    """

    component: str | None
    model: str | None
    prompt: Excerpt | None
    hints: list[str]
    records: Excerpt | None
    answer: Excerpt | None
    usage: list[AnswerUsage]


class TextsCompared(Part):
    """A component before and after."""

    before: Excerpt
    after: Excerpt


class ProposalShown(Part):
    """What a proposal was made from, and what it changed, by component.

    `rows`: of its minibatch of `size` rows, the first ones unless all were asked for, as the `records` of its prompts.
    """

    size: int
    rows: tuple[ComparedRow, ...]
    prompts: list[PromptShown]
    texts: dict[str, TextsCompared]


AnyPageAnswer = RunList | Cell | Excerpt | ProposalShown | Explanation
