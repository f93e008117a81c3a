"""The evaluation protocol: its models, methods, capabilities, errors and versions."""

from protocol.base import Candidate, JsonValue
from protocol.calls import CancelParams, CancelResult, GetResultParams, Pending, PendingCall, Progress
from protocol.datasets import ListedExample, ListExamplesParams, ListExamplesResult
from protocol.discovery import (
    ComponentInfo,
    DatasetInfo,
    DiscoverParams,
    DiscoverResult,
    Limits,
    ProgramInfo,
    ServerInfo,
)
from protocol.evaluation import (
    EvaluateParams,
    EvaluateResult,
    Example,
    ExampleError,
    ExampleResult,
    ScoreParams,
    ScoreResult,
    Status,
    Usage,
)
from protocol.lifecycle import FinalizeParams, FinalizeResult, RunInfo
from protocol.meta import Meta, Params
from protocol.methods import CAPABILITIES, METHODS, Capability, Method
from protocol.mutation import ApplyMutationParams, ApplyMutationResult, Mutation
from protocol.reflection import (
    EvalBatch,
    MakeReflectiveDatasetParams,
    MakeReflectiveDatasetResult,
    ProposeNewTextsParams,
    ProposeNewTextsResult,
    ReflectiveDataset,
)
from protocol.versions import CURRENT_VERSION, KNOWN_VERSIONS

__all__ = [
    "CAPABILITIES",
    "CURRENT_VERSION",
    "KNOWN_VERSIONS",
    "METHODS",
    "ApplyMutationParams",
    "ApplyMutationResult",
    "CancelParams",
    "CancelResult",
    "Candidate",
    "Capability",
    "ComponentInfo",
    "DatasetInfo",
    "DiscoverParams",
    "DiscoverResult",
    "EvalBatch",
    "EvaluateParams",
    "EvaluateResult",
    "Example",
    "ExampleError",
    "ExampleResult",
    "FinalizeParams",
    "FinalizeResult",
    "GetResultParams",
    "JsonValue",
    "Limits",
    "ListExamplesParams",
    "ListExamplesResult",
    "ListedExample",
    "MakeReflectiveDatasetParams",
    "MakeReflectiveDatasetResult",
    "Meta",
    "Method",
    "Mutation",
    "Params",
    "Pending",
    "PendingCall",
    "ProgramInfo",
    "Progress",
    "ProposeNewTextsParams",
    "ProposeNewTextsResult",
    "ReflectiveDataset",
    "RunInfo",
    "ScoreParams",
    "ScoreResult",
    "ServerInfo",
    "Status",
    "Usage",
]
