/** The transient failures of calls: by status, by the error of a transport, by what an answer states. */

import { isHolder, namesOf, read } from "../base/values.js";
import { WIRE } from "../generated/wire.js";

/** A transient failure. `reason`: in words, or the status. */
export interface Failure {
  reason: string;
  /** An HTTP status, the status of gRPC, or the code with which a WebSocket was closed. */
  status?: number | undefined;
  /** How long the host asked to wait. */
  retryAfterS?: number | undefined;
}

/** Codes of errors of Node.js, undici and the clients on top of them, with what they mean. */
const CODES: readonly (readonly [RegExp, string])[] = [
  [/^ECONNREFUSED$/, "connection refused"],
  [/^(ENOTFOUND|EAI_.*)$/, "host name not found"],
  [/^(E(NETDOWN|NETUNREACH|HOSTDOWN|HOSTUNREACH|ADDRNOTAVAIL))$/, "host unreachable"],
  [/^(E(SOCKET)?TIMEDOUT|ECONNABORTED|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT)$/, "timed out"],
  [
    /^(EPROTO|ERR_(TLS|SSL)_.*|UND_ERR_PRX_TLS|CERT_.*|.*_CERT_.*|UNABLE_TO_.*CERT.*|SELF_SIGNED_.*|.*SIGNED_CERT)$/,
    "TLS failed",
  ],
  [
    /^(ECONNRESET|EPIPE|ERR_NETWORK|ERR_STREAM_PREMATURE_CLOSE|UND_ERR_SOCKET|UND_ERR_RES_CONTENT_LENGTH_MISMATCH|HPE_.*|Z_(BUF|DATA)_ERROR)$/,
    "cut off",
  ],
  [/^ERR_HTTP2_(STREAM_ERROR|SESSION_ERROR|GOAWAY_SESSION|PING_CANCEL|STREAM_CANCEL)$/, "cut off"],
];

/** What an error of a transport means; undefined if it is not transient. */
export function reasonOf(error: unknown): string | undefined {
  const code = read(error, "code");
  return typeof code === "string" ? CODES.find(([codes]) => codes.test(code))?.[1] : undefined;
}

/** Whether an error states that a client waited in vain. An abort by the program is a `DOMException` with that name. */
export function isTimeout(error: object, names = /time_?out/i): boolean {
  return !(error instanceof DOMException) && namesOf(error).some((name) => names.test(name));
}

/** Whether an abort is the time-out of a client: a timer of a package, not of the program, has caused it. */
export function isClientsTimeout(error: unknown): boolean {
  const stack = read(error, "stack");
  if (read(error, "name") !== "AbortError" || typeof stack !== "string" || !/node:internal\/timers/.test(stack))
    return false;
  const caller = stack.split("\n").find((line) => /^\s+at /.test(line) && !/node:internal|new DOMException/.test(line));
  return caller !== undefined && /[\\/]node_modules[\\/]/.test(caller);
}

/** Whether an HTTP status is that of a transient failure. */
export function isTransientStatus(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || (status >= 500 && status <= 599);
}

/** The status of gRPC for a deadline, an exhausted resource or an outage. */
export function isTransientInGrpc(status: number): boolean {
  return status === 4 || status === 8 || status === 14;
}

/** How AWS names throttling, which some of its services answer with status 400. */
export const AWS_THROTTLING =
  /Throttl|TooManyRequests|ProvisionedThroughputExceeded|RequestLimitExceeded|SlowDown|ServiceUnavailable|InternalServer|ModelNotReady/;

const TRANSIENT = RegExp(WIRE.TRANSIENT, "i");
const LASTING = RegExp(WIRE.LASTING, "i");

/**
 * The failure that the JSON of an answer or of one event states; undefined if it states none that is transient.
 *
 * `isEvent`: of a stream, in which every error counts but a rejection: the stream had begun.
 */
export function statedFailure(json: unknown, isEvent: boolean): Failure | undefined {
  const answer = Array.isArray(json) ? json[0] : json;
  if (!isHolder(answer) || read(answer, "jsonrpc") !== undefined) return undefined;
  const choices = read(answer, "choices");
  const holders = [answer, read(answer, "response"), ...(Array.isArray(choices) ? choices : [])];
  const error =
    holders.map((each) => read(each, "error")).find(Boolean) ?? (read(answer, "type") === "error" && answer);
  if (!error) return undefined;
  const stated = isHolder(error)
    ? ["code", "status", "type", "reason", "message"].map((name) => read(error, name))
    : [error];
  const status = stated.map(Number).find((number) => number >= 400 && number <= 599);
  if (status !== undefined)
    return isTransientStatus(status) ? { reason: `${status} in its answer`, status } : undefined;
  const texts = stated.filter((each): each is string => typeof each === "string" && each !== "error");
  const names = texts.filter((text) => text.length <= WIRE.MAX_NAME && /^\S+$/.test(text) && text !== stated[4]);
  const named = names.find((name) => TRANSIENT.test(name));
  if (named === undefined && names.some((name) => LASTING.test(name))) return undefined;
  const words = named ?? texts.map((text) => TRANSIENT.exec(text)?.[0]).find(Boolean);
  return words || isEvent ? { reason: `${words ?? names[0] ?? "error"} in its answer` } : undefined;
}

/** The seconds that an answer asks to wait, by `retry-after-ms` or `retry-after`: seconds or a date. */
export function retryAfterS(header: (name: string) => string | undefined): number | undefined {
  const ms = Number.parseFloat(header("retry-after-ms") ?? "");
  if (ms >= 0) return ms / 1000;
  const given = header("retry-after");
  if (given === undefined) return undefined;
  const seconds = /^\s*[\d.]+\s*$/.test(given) ? Number(given) : (Date.parse(given) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
