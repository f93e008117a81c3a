/** An error of the contract; `generated/errors.ts` has a class for each code, from the classes of Python. */

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
}

function problemIn({ reason, errors }: ErrorDetails): string {
  if (typeof reason === "string") return reason;
  const first: unknown = Array.isArray(errors) ? errors[0] : undefined;
  return isObject(first)
    ? [first.path, first.message].filter((part) => typeof part === "string" && part).join(": ")
    : "";
}
