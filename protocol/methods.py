"""The one table of methods and capabilities; everything that needs the list reads it."""

from dataclasses import dataclass
from pathlib import Path

from protocol.base import CURRENT_VERSION, Params, ResultModel
from protocol.discovery import DiscoverParams, DiscoverResult, ListExamplesParams, ListExamplesResult
from protocol.evaluation import EvaluateParams, EvaluateResult, ScoreParams, ScoreResult
from protocol.lifecycle import CancelParams, CancelResult, FinalizeParams, FinalizeResult, GetResultParams
from protocol.mutation import (
    ApplyMutationParams,
    ApplyMutationResult,
    ImportCommitsParams,
    ImportCommitsResult,
    OutlineCodeParams,
    OutlineCodeResult,
)
from protocol.reflection import (
    GetTracesParams,
    GetTracesResult,
    MakeReflectiveDatasetParams,
    MakeReflectiveDatasetResult,
    ProposeNewTextsParams,
    ProposeNewTextsResult,
)

CONTRACT_FILE = Path(__file__).parent / "schema" / f"v{CURRENT_VERSION}.json"
"""The OpenRPC document that is generated from these tables."""


class RpcDiscoverParams(Params):
    """`rpc.discover` takes no params of its own."""


@dataclass(frozen=True)
class Method:
    """One row of the contract.

    `result` is None where the answer has no fixed shape of its own. `capability` is None for the core.
    `idempotent`: sending it again does no harm and costs nothing, so a client may, even without a `call_id`.
    """

    name: str
    params: type[Params]
    result: type[ResultModel] | None
    summary: str
    capability: str | None = None
    since: str = "1"
    idempotent: bool = False


CAPABILITIES: dict[str, str] = {
    "batch": "JSON-RPC arrays of requests",
    "idempotency": "`_meta.call_id`: the same call gives the same answer and runs nothing twice",
    "async": "`_meta.wait_s`: a call not done in time answers `pending`; `get_result` collects it",
    "partial": "`get_result.partial`: a pending evaluation answers with the results that are finished",
    "cancel": "`cancel`; without a `call_id`, closing the connection cancels",
    "reflective_datasets": "the program makes its own records: `make_reflective_dataset`",
    "steps": "steps in trajectories, and feedback by component",
    "score_trajectories": "`score` reads the trajectories of the results",
    "refs": "`trajectory_ref` in place of inline trajectories; `_meta.group`, `get_traces`",
    "example_timeout": "`_meta.example_timeout_s` lowers the limit of each example of a call",
    "exact_values": "markers in example data and outputs, for values that readers of JSON change",
    "datasets": "the server holds rows: `list_examples`, examples by `{id, split}`",
    "untyped_rows": "rows of texts get the types that the program declares: `untyped` of an example",
    "batch_evaluate": "`evaluate.items`: several candidates, each with its examples, in one call",
    "proposals": "the program proposes its own new texts",
    "commits": "the component `git_branch` names the commit that runs; `import_commits`",
    "mutations": "`apply_mutation` on the program's code or texts, `outline_code`",
    "scoring": "`score` for outputs made elsewhere",
    "finalize": "the program receives the best candidate",
    "adapter_state": "opaque state in and out of `make_reflective_dataset`",
    "images": "images in records: `images` of `make_reflective_dataset` and `propose_new_texts`",
    "openrpc": "`rpc.discover` answers the OpenRPC document",
}
"""What a server may offer beyond the core, and then names in `discover`: a summary of each."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("discover", DiscoverParams, DiscoverResult, "Describe server, program and limits.", idempotent=True),
        Method("evaluate", EvaluateParams, EvaluateResult, "Run a candidate on a batch of examples."),
        Method(
            "make_reflective_dataset",
            MakeReflectiveDatasetParams,
            MakeReflectiveDatasetResult,
            "Turn traced results into records for reflection.",
            capability="reflective_datasets",
        ),
        Method(
            "get_traces",
            GetTracesParams,
            GetTracesResult,
            "Fetch trajectories that the server keeps.",
            capability="refs",
            idempotent=True,
        ),
        Method(
            "get_result",
            GetResultParams,
            None,
            "Collect the answer of an earlier call.",
            capability="async",
            idempotent=True,
        ),
        Method("cancel", CancelParams, CancelResult, "Stop a running call.", capability="cancel", idempotent=True),
        Method(
            "list_examples",
            ListExamplesParams,
            ListExamplesResult,
            "List rows the server holds.",
            capability="datasets",
            idempotent=True,
        ),
        Method(
            "propose_new_texts",
            ProposeNewTextsParams,
            ProposeNewTextsResult,
            "Let the program propose new texts.",
            capability="proposals",
        ),
        Method(
            "apply_mutation",
            ApplyMutationParams,
            ApplyMutationResult,
            "Change a candidate's code or texts.",
            capability="mutations",
        ),
        Method(
            "outline_code",
            OutlineCodeParams,
            OutlineCodeResult,
            "Describe a candidate's code.",
            capability="mutations",
            idempotent=True,
        ),
        Method(
            "import_commits",
            ImportCommitsParams,
            ImportCommitsResult,
            "Take over commits made elsewhere.",
            capability="commits",
            idempotent=True,
        ),
        Method("score", ScoreParams, ScoreResult, "Score outputs made elsewhere.", capability="scoring"),
        Method(
            "finalize",
            FinalizeParams,
            FinalizeResult,
            "Report the best candidate of a run to the program.",
            capability="finalize",
        ),
        Method(
            "rpc.discover",
            RpcDiscoverParams,
            None,
            "The OpenRPC document of this contract.",
            capability="openrpc",
            idempotent=True,
        ),
    )
}
