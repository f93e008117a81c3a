/** The transient failures of calls: by status, by the error of a transport, by what an answer states. */

import { isHolder, namesOf, read } from "../base/error-values.js";

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

const STATES_OUTAGE =
  /rate.?limit|too.?many|quota|overload|exhausted|throttl|server.?error|internal|unavailable|time.?out|capacity|model.?stream.?error/i;
const MESSAGE_OF_OUTAGE = /rate.?limit|overloaded|too many requests|quota|unavailable|try again/i;
const STATES_REJECTION =
  /invalid|auth|permission|forbidden|denied|not.?found|too.?large|too.?long|context|content|policy|filter|moderation/i;

/**
 * The failure that the JSON of an answer or of one event states; undefined if it states none that is transient.
 *
 * `isEvent`: of a stream, in which every error counts but a rejection: the stream had begun.
 */
export function statedFailure(json: unknown, isEvent: boolean): Failure | undefined {
  const answer = Array.isArray(json) ? json[0] : json;
  if (!isHolder(answer) || read(answer, "jsonrpc") !== undefined) return undefined;
  const inner = read(answer, "response");
  const named = read(answer, "error") ?? read(inner, "error");
  const error = named ?? (read(answer, "type") === "error" ? answer : undefined);
  if (typeof error === "string") return statedFailure({ error: { message: error } }, isEvent);
  if (!isHolder(error)) return undefined;
  const stated = ["code", "type", "status", "reason"].map((name) => read(error, name));
  const status = stated.map(Number).find((number) => number >= 400 && number <= 599);
  if (status !== undefined)
    return isTransientStatus(status) ? { reason: `${status} in its answer`, status } : undefined;
  const words = stated.filter((each): each is string => typeof each === "string" && each !== "error");
  const message = String(read(error, "message") ?? "");
  const isOutage = MESSAGE_OF_OUTAGE.test(message);
  const outage = words.find((word) => STATES_OUTAGE.test(word)) ?? (isOutage ? message : undefined);
  if (outage !== undefined) return { reason: `${outage.slice(0, 60)} in its answer` };
  if (!isEvent || [...words, message].some((word) => STATES_REJECTION.test(word))) return undefined;
  return { reason: `${(words[0] ?? "error").slice(0, 60)} in its answer` };
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
