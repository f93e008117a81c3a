// Generated from the contract's schema by `npm run generate`; do not edit.

import type { ApplyMutationParams, ApplyMutationResult, CancelParams, CancelResult, DiscoverParams, DiscoverResult, EvaluateParams, EvaluateResult, FinalizeParams, FinalizeResult, GetResultParams, ImportCommitsParams, ImportCommitsResult, ListExamplesParams, ListExamplesResult, MakeReflectiveDatasetParams, MakeReflectiveDatasetResult, OutlineCodeParams, OutlineCodeResult, ProposeNewTextsParams, ProposeNewTextsResult, RpcDiscoverParams, ScoreParams, ScoreResult } from "./types.js";

/** The version of the contract this package speaks. */
export const PROTOCOL_VERSION = "1";

/** Every method: the names of its types, the capability it belongs to (null: core), whether repeating it is free. */
export const METHODS = {
  "discover": {
    "params": "DiscoverParams",
    "result": "DiscoverResult",
    "capability": null,
    "since": "1",
    "idempotent": true
  },
  "evaluate": {
    "params": "EvaluateParams",
    "result": "EvaluateResult",
    "capability": null,
    "since": "1",
    "idempotent": false
  },
  "make_reflective_dataset": {
    "params": "MakeReflectiveDatasetParams",
    "result": "MakeReflectiveDatasetResult",
    "capability": null,
    "since": "1",
    "idempotent": false
  },
  "get_result": {
    "params": "GetResultParams",
    "result": null,
    "capability": "async",
    "since": "1",
    "idempotent": true
  },
  "cancel": {
    "params": "CancelParams",
    "result": "CancelResult",
    "capability": "cancel",
    "since": "1",
    "idempotent": true
  },
  "list_examples": {
    "params": "ListExamplesParams",
    "result": "ListExamplesResult",
    "capability": "datasets",
    "since": "1",
    "idempotent": true
  },
  "propose_new_texts": {
    "params": "ProposeNewTextsParams",
    "result": "ProposeNewTextsResult",
    "capability": "proposals",
    "since": "1",
    "idempotent": false
  },
  "apply_mutation": {
    "params": "ApplyMutationParams",
    "result": "ApplyMutationResult",
    "capability": "mutations",
    "since": "1",
    "idempotent": false
  },
  "outline_code": {
    "params": "OutlineCodeParams",
    "result": "OutlineCodeResult",
    "capability": "mutations",
    "since": "1",
    "idempotent": true
  },
  "import_commits": {
    "params": "ImportCommitsParams",
    "result": "ImportCommitsResult",
    "capability": "commits",
    "since": "1",
    "idempotent": true
  },
  "score": {
    "params": "ScoreParams",
    "result": "ScoreResult",
    "capability": "scoring",
    "since": "1",
    "idempotent": false
  },
  "finalize": {
    "params": "FinalizeParams",
    "result": "FinalizeResult",
    "capability": "finalize",
    "since": "1",
    "idempotent": false
  },
  "rpc.discover": {
    "params": "RpcDiscoverParams",
    "result": null,
    "capability": "openrpc",
    "since": "1",
    "idempotent": true
  }
} as const;

/** The params and the result of every method. */
export interface MethodTypes {
  "discover": { params: DiscoverParams; result: DiscoverResult };
  "evaluate": { params: EvaluateParams; result: EvaluateResult };
  "make_reflective_dataset": { params: MakeReflectiveDatasetParams; result: MakeReflectiveDatasetResult };
  "get_result": { params: GetResultParams; result: unknown };
  "cancel": { params: CancelParams; result: CancelResult };
  "list_examples": { params: ListExamplesParams; result: ListExamplesResult };
  "propose_new_texts": { params: ProposeNewTextsParams; result: ProposeNewTextsResult };
  "apply_mutation": { params: ApplyMutationParams; result: ApplyMutationResult };
  "outline_code": { params: OutlineCodeParams; result: OutlineCodeResult };
  "import_commits": { params: ImportCommitsParams; result: ImportCommitsResult };
  "score": { params: ScoreParams; result: ScoreResult };
  "finalize": { params: FinalizeParams; result: FinalizeResult };
  "rpc.discover": { params: RpcDiscoverParams; result: unknown };
}

/** Every error: its code, its text where none better is known, whether trying again can help. */
export const ERRORS = {
  "ParseError": {
    "code": -32700,
    "message": "Parse error",
    "retryable": false
  },
  "InvalidRequest": {
    "code": -32600,
    "message": "Invalid Request",
    "retryable": false
  },
  "MethodNotFound": {
    "code": -32601,
    "message": "Method not found",
    "retryable": false
  },
  "InvalidParams": {
    "code": -32602,
    "message": "Invalid params",
    "retryable": false
  },
  "InternalError": {
    "code": -32603,
    "message": "Internal error",
    "retryable": true
  },
  "VersionNotSupported": {
    "code": -32020,
    "message": "Protocol version not supported",
    "retryable": false
  },
  "Unauthorized": {
    "code": -32021,
    "message": "Unauthorized",
    "retryable": false
  },
  "UnknownCandidate": {
    "code": -32022,
    "message": "Unknown candidate",
    "retryable": false
  },
  "UnknownExample": {
    "code": -32023,
    "message": "Unknown example",
    "retryable": false
  },
  "TrajectoryExpired": {
    "code": -32024,
    "message": "Trajectory expired",
    "retryable": false
  },
  "ProgramFailed": {
    "code": -32025,
    "message": "Program failed",
    "retryable": false
  },
  "MutationRejected": {
    "code": -32026,
    "message": "Mutation rejected",
    "retryable": false
  },
  "CallCancelled": {
    "code": -32027,
    "message": "Call cancelled",
    "retryable": true
  },
  "CallNotFound": {
    "code": -32028,
    "message": "Call not found",
    "retryable": false
  },
  "CallIdConflict": {
    "code": -32029,
    "message": "Call id conflict",
    "retryable": false
  },
  "Overloaded": {
    "code": -32030,
    "message": "Overloaded",
    "retryable": true
  },
  "LimitExceeded": {
    "code": -32031,
    "message": "Limit exceeded",
    "retryable": false
  }
} as const;
