/** A typed client on `fetch`: every call under a deadline, every answer bounded and checked. */

import { checkToken, isLoopback } from "../base/access.js";
import { parseJson } from "../base/json.js";
import { RpcError } from "../base/rpc-error.js";
import { MAX_TIMER_MS } from "../base/runtime.js";
import { bytesOf } from "../base/streams.js";
import { faults, type WireTypeName } from "../base/validate.js";
import { isObject } from "../base/values.js";
import { ERRORS, METHODS, type MethodTypes } from "../generated/contract.js";
import * as classes from "../generated/errors.js";
import type { DiscoverResult, ErrorObject, EvaluateResult } from "../generated/types.js";

export interface ClientOptions {
  /** The bearer token; default: the environment variable GEPA_TOKEN. */
  token?: string;
  /** Seconds that a call may take unless its own `timeoutS` is given; default 300. */
  timeoutS?: number;
  /** Whether the token may be sent over plain http to another machine; default false. */
  allowInsecure?: boolean;
  /** Maximum bytes of one response; default 256 MiB. */
  maxResponseBytes?: number;
  /** Used in place of the global `fetch`. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
}

export interface CallOptions {
  /** Makes the call idempotent: a repeated request with the same id returns the same answer. */
  callId?: string;
  /** Names a minibatch, and requests trajectory references in place of trajectories. */
  group?: string;
  /** Seconds that this call may take. */
  timeoutS?: number;
  signal?: AbortSignal | undefined;
}

export type MethodName = keyof MethodTypes;
export type ParamsOf<Name extends MethodName> = Omit<MethodTypes[Name]["params"], "_meta">;
export type ResultOf<Name extends MethodName> = MethodTypes[Name]["result"];

/** How long one request of `complete` waits at the server. */
const POLL_S = 20;
const MAX_RETRIES = 5;

export class RpcClient {
  readonly url: string;
  readonly #token: string;
  readonly #options: Required<Pick<ClientOptions, "timeoutS" | "maxResponseBytes" | "fetch">>;
  #lastId = 0;

  /** `url` with or without `/rpc`. Throws `Refused` for plain http beyond loopback, `SetupError` without a token. */
  constructor(url: string, options: ClientOptions = {}) {
    const { protocol, hostname, href, username, password } = new URL(url);
    if (protocol !== "https:" && protocol !== "http:") throw new Refused(`${protocol} is neither http nor https`);
    if (protocol === "http:" && !isLoopback(hostname) && !options.allowInsecure) {
      throw new Refused(`a token over plain http to ${hostname} can be read on its way: use https, or allowInsecure`);
    }
    if (username !== "" || password !== "") throw new Refused("a URL carries no token: it would end up in logs");
    const { process } = globalThis as { process?: { env?: { GEPA_TOKEN?: string } } };
    const token = options.token ?? process?.env?.GEPA_TOKEN;
    checkToken(token, "the option `token`, or the environment's GEPA_TOKEN,");
    this.#token = token;
    this.url = href.endsWith("/rpc") ? href : `${href.replace(/\/$/, "")}/rpc`;
    this.#options = {
      timeoutS: options.timeoutS ?? 300,
      maxResponseBytes: options.maxResponseBytes ?? 256 * 2 ** 20,
      fetch: options.fetch ?? ((target, init) => fetch(target, init)),
    };
  }

  discover(options?: CallOptions): Promise<DiscoverResult> {
    return this.call("discover", {}, options);
  }

  /** Evaluate a batch of any duration if the server offers `async`, else within one request. */
  evaluate(params: ParamsOf<"evaluate">, options?: CallOptions): Promise<EvaluateResult> {
    return this.complete("evaluate", params, options);
  }

  /** Send one request. Throws `RpcError` for an error of the server, `ClientError` for one of the connection. */
  async call<Name extends MethodName>(
    method: Name,
    params: ParamsOf<Name>,
    options: CallOptions = {},
  ): Promise<ResultOf<Name>> {
    return this.#checked(method, await this.#send(method, params, options));
  }

  /**
   * Make a call of any duration and collect it by its `call_id`: after a lost connection nothing runs twice. Falls back
   * to one request if the server does not offer that.
   */
  async complete<Name extends MethodName>(
    method: Name,
    params: ParamsOf<Name>,
    options: CallOptions = {},
  ): Promise<ResultOf<Name>> {
    const { capabilities = [] } = await this.discover({ signal: options.signal });
    if (!capabilities.includes("async") || !capabilities.includes("idempotency")) {
      return this.call(method, params, options);
    }
    const callId = options.callId ?? crypto.randomUUID();
    const until = performance.now() + (options.timeoutS ?? Number.POSITIVE_INFINITY) * 1000;
    for (let lost = 0; performance.now() < until; ) {
      const waitS = Math.max(0, Math.min(POLL_S, (until - performance.now()) / 1000));
      try {
        const answer = await this.#send(method, params, { ...options, callId, timeoutS: waitS + POLL_S }, waitS);
        if (!isPending(answer)) return this.#checked(method, answer);
        lost = 0;
      } catch (error) {
        if (!(error instanceof ConnectionLost) || options.signal?.aborted || ++lost > MAX_RETRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** lost));
      }
    }
    throw new ConnectionLost(`${method} did not finish in time; it continues under call_id ${callId}`);
  }

  #checked<Name extends MethodName>(method: Name, result: unknown): ResultOf<Name> {
    const type: WireTypeName | null = METHODS[method].result;
    const [fault] = type === null ? [] : faults(type, result);
    if (fault !== undefined) throw new BadResponse(`the answer breaks the contract: ${fault.path}: ${fault.message}`);
    return result as ResultOf<Name>;
  }

  /** `waitS`: seconds to wait before the server answers `pending`; needs a `callId`. */
  async #send(method: string, params: object, options: CallOptions, waitS?: number): Promise<unknown> {
    const { callId, group, signal } = options;
    const id = ++this.#lastId;
    const _meta = { call_id: callId, wait_s: waitS, group };
    const body = JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta } });
    const timeoutMs = Math.min((options.timeoutS ?? this.#options.timeoutS) * 1000, MAX_TIMER_MS);
    const deadline = AbortSignal.timeout(timeoutMs);
    const stop = signal === undefined ? deadline : AbortSignal.any([deadline, signal]);
    const { status, bytes } = await this.#exchange(body, stop);
    return resultOf(read(status, bytes), id);
  }

  async #exchange(body: string, signal: AbortSignal): Promise<{ status: number; bytes: Uint8Array }> {
    const limit = this.#options.maxResponseBytes;
    try {
      const response = await this.#options.fetch(this.url, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${this.#token}` },
        body,
        redirect: "manual",
        signal,
      });
      const bytes = await bytesOf(response.body, limit);
      if (bytes === undefined) throw new BadResponse(`the answer is longer than ${limit} bytes`);
      return { status: response.status, bytes };
    } catch (error) {
      if (error instanceof BadResponse) throw error;
      const reason = error instanceof Error ? ((error.cause as Error | undefined)?.message ?? error.message) : "";
      throw new ConnectionLost(`no answer from ${this.url}: ${reason}`, { cause: error });
    }
  }
}

function isPending(result: unknown): boolean {
  return isObject(result) && "pending" in result && faults("Pending", result).length === 0;
}

function read(status: number, bytes: Uint8Array): Record<string, unknown> {
  let answer: unknown;
  try {
    answer = parseJson(bytes);
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
  }
  if (isObject(answer) && answer.jsonrpc === "2.0") return answer;
  if ([502, 503, 504].includes(status)) throw new ConnectionLost(`HTTP ${status} without an answer`);
  throw new BadResponse(`HTTP ${status} without a JSON-RPC answer`);
}

function resultOf(answer: Record<string, unknown>, id: number): unknown {
  if (faults("ErrorResponse", answer).length === 0) throw errorOfServer(answer.error as ErrorObject);
  if (faults("SuccessResponse", answer).length > 0) throw new BadResponse("the answer is no JSON-RPC response");
  if (answer.id !== id) throw new BadResponse("the answer is another request's");
  return answer.result;
}

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
