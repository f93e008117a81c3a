/** The JSON-RPC 2.0 envelope of requests and responses. */

import type { RpcError } from "../base/rpc-error.js";
import { isObject } from "../base/values.js";
import { InvalidRequest } from "../generated/errors.js";
import type { Answer } from "./jobs.js";

export type RequestId = string | number | null;

const KEYS = new Set(["jsonrpc", "method", "params", "id"]);

/**
 * Read the envelope of one message; `id` is undefined for a notification, and `params` may be positional. Throws
 * `InvalidRequest`, which is answered with id null as JSON-RPC requires.
 */
export function readEnvelope(message: unknown): { method: string; params: object; id: RequestId | undefined } {
  if (!isObject(message)) throw invalid("a request must be an object");
  const { jsonrpc, method, params = {}, id } = message;
  if (jsonrpc !== "2.0") throw invalid('jsonrpc must be "2.0"');
  if (typeof method !== "string") throw invalid("method must be a string");
  if (typeof params !== "object" || params === null) throw invalid("params must be an object");
  if (id !== undefined && !isRequestId(id)) throw invalid("id must be a string, an integer within 2^53 - 1 or null");
  if (Object.keys(message).some((key) => !KEYS.has(key))) {
    throw invalid("a request has the members jsonrpc, method, params and id, and no others");
  }
  return { method, params, id };
}

export function invalid(reason: string): InvalidRequest {
  return new InvalidRequest(undefined, { reason });
}

function isRequestId(id: unknown): id is RequestId {
  return id === null || typeof id === "string" || Number.isSafeInteger(id);
}

/** Write the text of a response whose result or error is JSON already. */
export function answerText(id: RequestId, answer: Answer): string {
  const member = "result" in answer ? `"result":${answer.result}` : `"error":${answer.error}`;
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${member}}`;
}

/** Write the text of an error response. */
export function errorText(id: RequestId, error: RpcError): string {
  return JSON.stringify({ jsonrpc: "2.0", id, error: error.toWire() });
}
