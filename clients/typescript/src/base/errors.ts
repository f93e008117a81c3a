/**
 * Every error the contract knows, one code and one meaning each; codes and texts come from the schema.
 *
 * RpcError
 * ├── ParseError              -32700  the body is not JSON (or not UTF-8, holds NaN, nests too deep)
 * ├── InvalidRequest          -32600  it is JSON but not a JSON-RPC 2.0 request, or a batch where none are taken
 * ├── MethodNotFound          -32601  no such method here; its capability may not be offered
 * ├── InvalidParams           -32602  a field is unknown, missing or of the wrong kind; `errors` gives each path
 * ├── InternalError           -32603  a defect of the server; never carries an exception's text
 * ├── VersionNotSupported     -32020  `supported` versions, and the one `requested`
 * ├── Unauthorized            -32021  no token, a wrong one, a foreign Host or Origin
 * ├── UnknownCandidate        -32022  not the program's components (`unknown`, `missing`), or an unknown `commit`
 * ├── UnknownExample          -32023  no such split or id among the rows the server holds
 * ├── TrajectoryExpired       -32024  the `refs` are gone; trace the minibatch afresh
 * ├── ProgramFailed           -32025  the program cannot start or cannot answer this call at all (`stage`, `log_tail`)
 * ├── MutationRejected        -32026  the mutation left no trace (`stage`, `reason`)
 * ├── CallCancelled           -32027  cancelled, or abandoned because no request waited for it
 * ├── CallNotFound            -32028  no such `call_id` here: never seen, or its answer was evicted
 * ├── CallIdConflict          -32029  the `call_id` was used for another method or other params
 * ├── Overloaded              -32030  no room now, or shutting down; try again after `retry_after_s`
 * └── LimitExceeded           -32031  the request is beyond a stated limit (`limit`, `allowed`, `given`)
 *
 * Servers throw these and write them with `toWire`. Clients read them with `RpcError.fromWire`, which picks the class
 * by code alone: a name a peer sent is never looked up.
 */

import { ERRORS } from "../generated/contract.js";
import type { ErrorObject } from "../generated/types.js";
import { isObject } from "./values.js";

export type ErrorDetails = Record<string, unknown>;

/** One row of the schema's error table. */
interface ErrorRow {
  code: number;
  message: string;
  retryable: boolean;
}

/**
 * An error as the wire carries it. `retryable`: the same request, later or on another endpoint, can succeed.
 *
 * `wireMessage` is the message on the wire. `message` adds to it what `details` give as `reason` or as the first of
 * `errors`: `Invalid params: batch[0].id: missing field`.
 */
export class RpcError extends Error {
  readonly code: number;
  readonly wireMessage: string;
  readonly retryable: boolean;
  readonly details: ErrorDetails;

  constructor(row: ErrorRow, message?: string, details: ErrorDetails = {}, retryable?: boolean) {
    const wireMessage = message ?? row.message;
    super([wireMessage, problemIn(details)].filter(Boolean).join(": "));
    this.name = new.target.name;
    this.code = row.code;
    this.wireMessage = wireMessage;
    this.retryable = retryable ?? row.retryable;
    this.details = details;
  }

  /** The JSON-RPC error object: `{code, message, data: {retryable, ...details}}`. */
  toWire(): ErrorObject {
    return { code: this.code, message: this.wireMessage, data: { retryable: this.retryable, ...this.details } };
  }

  /** The error for a JSON-RPC error object; an unknown code gives a plain `RpcError` that keeps it. */
  static fromWire(error: ErrorObject): RpcError {
    const { retryable, ...details } = isObject(error.data) ? error.data : {};
    const known = typeof retryable === "boolean" ? retryable : undefined;
    const kind = BY_CODE.get(error.code);
    if (kind !== undefined) return new kind(error.message, details, known);
    return new RpcError({ code: error.code, message: error.message, retryable: false }, error.message, details, known);
  }
}

function problemIn({ reason, errors }: ErrorDetails): string {
  if (typeof reason === "string") return reason;
  const first: unknown = Array.isArray(errors) ? errors[0] : undefined;
  return isObject(first)
    ? [first.path, first.message].filter((part) => typeof part === "string" && part).join(": ")
    : "";
}

/** The constructor all of the contract's own errors share. */
export type RpcErrorClass = new (message?: string, details?: ErrorDetails, retryable?: boolean) => RpcError;

/** The body is not JSON in UTF-8, holds NaN or Infinity, or nests beyond the server's limit. */
export class ParseError extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.ParseError, message, details, retryable);
  }
}

/** JSON, but not a JSON-RPC 2.0 request. */
export class InvalidRequest extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.InvalidRequest, message, details, retryable);
  }
}

/** The server does not offer this method. */
export class MethodNotFound extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.MethodNotFound, message, details, retryable);
  }
}

/** The params do not fit the method; `details.errors` is a list of `{path, message}`. */
export class InvalidParams extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.InvalidParams, message, details, retryable);
  }
}

/** A defect of the server; the text stays in the server's own log. */
export class InternalError extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.InternalError, message, details, retryable);
  }
}

/** The request names a version the server does not speak. */
export class VersionNotSupported extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.VersionNotSupported, message, details, retryable);
  }
}

/** The token, `Host` or `Origin` is not one the server accepts. */
export class Unauthorized extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.Unauthorized, message, details, retryable);
  }
}

/**
 * The candidate's components are not those of the program, or its commit is not available.
 *
 * `details.commit`: the missing commit, which `import_commits` can supply.
 */
export class UnknownCandidate extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.UnknownCandidate, message, details, retryable);
  }
}

/** The server holds no such row. */
export class UnknownExample extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.UnknownExample, message, details, retryable);
  }
}

/** The trajectories behind `details.refs` are gone. The scores recorded with them stand. */
export class TrajectoryExpired extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.TrajectoryExpired, message, details, retryable);
  }
}

/** The program cannot start, or failed in a call that does not belong to one example. */
export class ProgramFailed extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.ProgramFailed, message, details, retryable);
  }
}

/**
 * The mutation was refused at `details.stage` for `details.reason`; nothing was changed.
 *
 * Stages: `agent`, `edit`, `empty`, `paths`, `size`, `environment`, `build`, `check`, `start`, `push`.
 */
export class MutationRejected extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.MutationRejected, message, details, retryable);
  }
}

/** The call was cancelled, or abandoned because no request waited for it. */
export class CallCancelled extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.CallCancelled, message, details, retryable);
  }
}

/** This instance knows no such `call_id`. */
export class CallNotFound extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.CallNotFound, message, details, retryable);
  }
}

/** The `call_id` already stands for another request. */
export class CallIdConflict extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.CallIdConflict, message, details, retryable);
  }
}

/** The server takes no more work at present. */
export class Overloaded extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.Overloaded, message, details, retryable);
  }
}

/** The request is larger than a limit the server states in `discover`. */
export class LimitExceeded extends RpcError {
  constructor(message?: string, details?: ErrorDetails, retryable?: boolean) {
    super(ERRORS.LimitExceeded, message, details, retryable);
  }
}

const CLASSES: Record<keyof typeof ERRORS, RpcErrorClass> = {
  ParseError,
  InvalidRequest,
  MethodNotFound,
  InvalidParams,
  InternalError,
  VersionNotSupported,
  Unauthorized,
  UnknownCandidate,
  UnknownExample,
  TrajectoryExpired,
  ProgramFailed,
  MutationRejected,
  CallCancelled,
  CallNotFound,
  CallIdConflict,
  Overloaded,
  LimitExceeded,
};

const BY_CODE: ReadonlyMap<number, RpcErrorClass> = new Map(
  (Object.keys(CLASSES) as (keyof typeof ERRORS)[]).map((name) => [ERRORS[name].code, CLASSES[name]]),
);
