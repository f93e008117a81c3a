/**
 * Decide by evidence whether an example failed because of its infrastructure.
 *
 * The errors behind a thrown value are read as well, nearest first: `lastError`, else `cause`, `errors` and every error in
 * a property of its own. The first of them that is decisive decides. One that states a failure is evidence unless the
 * calls that it may be of are known, and none of them is open: then the program has dealt with it. One that the program
 * made itself is evidence only with an open call.
 */

import { isNode } from "../base/runtime.js";
import { isError, isHolder, nameOf, ownValues, read, readOrCall } from "../base/values.js";
import { type Call, callOf, ExampleCalls } from "./example-calls.js";
import { AWS_THROTTLING, type Failure, isTimeout, isTransientInGrpc, isTransientStatus, reasonOf } from "./failures.js";
import { hasLostConnection } from "./watch-sockets.js";

const MAX_VALUES = 64;
const MAX_MESSAGE = 200;
/** Shorter messages of a transport's error may be in any text. */
const MIN_QUOTED = 8;
/** Smaller statuses, those of gRPC, may be any number of a text. */
const MIN_IN_TEXT = 400;

/** Whether a thrown value is an infrastructure failure, and what shows it: an HTTP status, an error, an open call. */
export interface Verdict {
  transient: boolean;
  evidence?: string;
}

/** Judge what a program threw by what is known of its calls; a boolean property `retryable` takes precedence. */
export function judge(thrown: unknown, calls: ExampleCalls): Verdict {
  const found = judgeChain(thrown, calls);
  if (found.transient || found.isFinal) return found;
  const open = calls.openModelCall;
  return open === undefined ? found : { transient: true, evidence: String(open) };
}

/** The transient failure that a value states by itself that a call of a model threw. */
export function failureIn(thrown: unknown): Failure | undefined {
  const { transient, evidence } = judgeChain(thrown);
  return transient ? { reason: evidence ?? "an error" } : undefined;
}

/** Without `calls`, what is judged is the failure of a call. */
function judgeChain(thrown: unknown, calls?: ExampleCalls): Verdict & { isFinal?: boolean } {
  const queue = isHolder(thrown) ? [thrown] : [{ name: typeof thrown, message: String(thrown) }];
  let rejected: Verdict = { transient: false };
  for (const value of queue) {
    const retryable = read(value, "retryable");
    if (typeof retryable === "boolean") {
      const status = httpStatus(value);
      return {
        transient: retryable,
        isFinal: true,
        ...(status === undefined ? {} : { evidence: about(value, status) }),
      };
    }
    const judged = judgeValue(value, thrown, calls);
    if (judged?.transient) return judged;
    if (judged !== undefined) rejected = rejected.evidence === undefined ? judged : rejected;
    else {
      for (const behind of valuesBehind(value)) {
        if (queue.length < MAX_VALUES && !queue.includes(behind)) queue.push(behind);
      }
    }
  }
  return rejected;
}

/** What one value decides; undefined if nothing. */
function judgeValue(value: object, thrown: unknown, given?: ExampleCalls): Verdict | undefined {
  const calls = given ?? new ExampleCalls();
  const isOwn = given !== undefined && isOfProgram(value);
  const call = callOf(value);
  if (call !== undefined) return calls.isOpen(call) ? { transient: true, evidence: String(call) } : undefined;
  const status = httpStatus(value);
  if (status !== undefined) {
    const isTransient = isTransientStatus(status) || isThrottled(value);
    const found = isTransient ? calls.find(ofStatus(status)) : undefined;
    return found === "handled" || (isTransient && isOwn && found === undefined)
      ? undefined
      : { transient: isTransient, evidence: about(value, status) };
  }
  const open = calls.find((each) => isLinked(value, each));
  if (open !== undefined && open !== "handled") return { transient: true, evidence: `${open}, ${nameOf(value)}` };
  if (isOwn || !statesFailure(value, calls) || calls.find(({ code }) => code !== undefined) === "handled")
    return undefined;
  return value === thrown ? { transient: true } : { transient: true, evidence: about(value) };
}

function ofStatus(status: number): (call: Call) => boolean {
  return (call) => call.failure?.status === status;
}

/** Whether an error without a status names a failed call: its code, the transport's message, its status or its host. */
function isLinked(value: object, { code, message, failure, host }: Call): boolean {
  const text = String(read(value, "message") ?? "");
  const { status, reason } = failure ?? {};
  if (reason !== undefined && reasonOf(value) === reason) return true;
  if (status !== undefined && Number(read(value, "code")) === status) return true;
  if (status !== undefined && status >= MIN_IN_TEXT && new RegExp(`\\b${status}\\b`).test(text)) return true;
  if (code !== undefined && (read(value, "code") === code || text.includes(code))) return true;
  if (message !== undefined && message.length >= MIN_QUOTED && text.includes(message)) return true;
  return isError(value) && hostOf(value) === host;
}

/** Whether an error without a status states a transient failure, of a call that need not have been seen. */
function statesFailure(value: object, calls: ExampleCalls): boolean {
  if (reasonOf(value) !== undefined) return true;
  if (isTimeout(value) && calls.wasStoppedBefore(value)) return true;
  if (isTimeout(value, /connection.?time_?out/i)) return true; // before anything was sent
  const code = read(value, "code");
  const message = String(read(value, "message") ?? "");
  if (isHolder(read(value, "metadata"))) {
    const status = Number(readOrCall(value, "code"));
    return isTransientInGrpc(status) || (status === 13 && /RST_STREAM/.test(message)); // reset by the host
  }
  if (typeof code === "string" && read(value, "severity") !== undefined) return /^(08|53|57P0)/.test(code); // PostgreSQL
  if (hasLostConnection(value, calls.began)) return true;
  if (code === -32000 || code === -32001) return /connection closed|timed out/i.test(message); // MCP
  if (nameOf(value) === "MongoServerSelectionError") return true;
  const labels = read(value, "errorLabels"); // MongoDB
  if (Array.isArray(labels) && labels.some((label) => /^(Retryable|TransientTransaction)/.test(String(label))))
    return true;
  // `fetch` explains its failure by a cause, which an error that was copied has lost.
  return value instanceof TypeError && message === "fetch failed" && read(value, "cause") === undefined;
}

/** What Node.js makes errors of the network in. */
const NETWORK =
  /\(?node:(net|dns|https?|http2|_http_\w+|tls|_tls_\w+|internal\/(net|dns|tls|http2?|stream_base_commons|deps\/undici))\b/;

/**
 * Whether an error was made in code of the program, or in a module of Node.js that is none of the network, as its stack
 * shows. Of other runtimes and of values without a stack this is not known.
 */
function isOfProgram(value: object): boolean {
  const stack = read(value, "stack");
  if (typeof stack !== "string" || !isNode()) return false;
  const frames = stack.split("\n").filter((line) => /^\s+at /.test(line));
  const maker = frames.find((line) => !/ at new |node:internal\/errors:/.test(line)) ?? "at async";
  return !/ at async|[\\/]node_modules[\\/]/.test(maker) && !NETWORK.test(maker);
}

function valuesBehind(value: object): object[] {
  const last = read(value, "lastError");
  if (isHolder(last)) return [last];
  const errors = read(value, "errors");
  const listed = Array.isArray(errors) ? errors.slice(0, MAX_VALUES) : [];
  return [read(value, "cause"), ...listed, ...ownValues(value, MAX_VALUES).filter(isError)].filter(isHolder);
}

/** The status from 400 to 599 of an error or its response. A number in `code` alone may be the program's own. */
function httpStatus(value: object): number | undefined {
  const response = read(value, "response");
  const found = ["statusCode", "status", "status_code", "getStatus"].map((name) => readOrCall(value, name));
  if (isHolder(response)) found.push(read(response, "status"), read(response, "statusCode"));
  found.push(read(read(value, "$metadata"), "httpStatusCode"));
  if (isHolder(response) || isHolder(read(value, "headers"))) found.push(Number(read(value, "code")));
  return found.find((number): number is number => typeof number === "number" && number >= 400 && number <= 599);
}

/** Throttling by AWS, which some of its services answer with status 400. */
function isThrottled(value: object): boolean {
  if (isHolder(read(value, "$retryable"))) return true;
  return isHolder(read(value, "$metadata")) && AWS_THROTTLING.test(nameOf(value));
}

function about(value: object, status?: number): string {
  const name = nameOf(value);
  if (status === undefined) return `${name}: ${String(read(value, "message") ?? "").slice(0, MAX_MESSAGE)}`;
  const host = hostOf(value);
  return `HTTP ${status}${host === undefined ? "" : ` from ${host}`}, ${name}`;
}

/** Host and port that answered: the rest of a URL may hold a key. */
function hostOf(value: object): string | undefined {
  for (const holder of [value, read(value, "response"), read(value, "request"), read(value, "config")]) {
    for (const name of ["url", "baseURL"]) {
      const url = read(holder, name);
      if (typeof url === "string" && URL.canParse(url)) return new URL(url).host;
    }
  }
  return undefined;
}
