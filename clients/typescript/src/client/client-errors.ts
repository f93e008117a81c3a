/**
 * Errors of a client: those that the server returns (`RpcError`), and those between the two.
 *
 * ClientError
 * ├── ConnectionLost   the outcome is unknown: reset, too late, or a proxy's 502, 503, 504
 * ├── BadResponse      what came back is not the contract's: no JSON-RPC, too large, a redirect
 * └── Refused          this client will not send it: plain http beyond loopback
 */

import { RpcError } from "../base/rpc-error.js";
import { isObject } from "../base/values.js";
import { ERRORS } from "../generated/contract.js";
import * as classes from "../generated/errors.js";
import type { ErrorObject } from "../generated/types.js";

export class ClientError extends Error {
  override name = this.constructor.name;
}

/** It is unknown whether the server did the work; repeat the request with the same `call_id` to find out. */
export class ConnectionLost extends ClientError {}

/** The answer breaks the contract. */
export class BadResponse extends ClientError {}

/** The client's own rules forbid the request. */
export class Refused extends ClientError {}

/** The error for a JSON-RPC error object, by its code alone; an unknown code gives a plain `RpcError` that keeps it. */
export function errorOfServer({ code, message, data }: ErrorObject): RpcError {
  const { retryable, ...details } = isObject(data) ? data : {};
  const known = typeof retryable === "boolean" ? retryable : undefined;
  const name = (Object.keys(ERRORS) as (keyof typeof ERRORS)[]).find((each) => ERRORS[each].code === code);
  if (name === undefined) return new RpcError({ code, message, retryable: false }, message, details, known);
  // biome-ignore lint/performance/noDynamicNamespaceImportAccess: every class is exported, nothing could be left out
  return new classes[name](message, details, known);
}
