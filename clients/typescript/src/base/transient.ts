/**
 * Decide whether a thrown value is an infrastructure failure: a rate limit, an outage or a failing network.
 *
 * The errors behind it are read as well, nearest first: `lastError`, else `cause`, `errors` and every error in a property
 * of its own. The first of them that is decisive decides; what lies behind a value that is decided is not read. Of several
 * that are equally near, one infrastructure failure is enough: the example is then tried again, which corrects a wrong
 * guess, and a score would not be corrected.
 */

const MAX_VALUES = 64;
const MAX_MESSAGE = 200;
const LANGCHAIN_RETRYABLE = Symbol.for("langchain.errors.retryable");

/** Class names of errors that are infrastructure failures without a status or an error of the network behind them. */
const NAMES = new Set([
  "RateLimitError",
  "APIConnectionError",
  "APIConnectionTimeoutError",
  "InternalServerError",
  "OverloadedError",
]);

/** Error codes of Node.js, undici and axios for a connection that was not made, or broke, or timed out. */
const NETWORK_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "ESOCKETTIMEDOUT",
  "ENETDOWN",
  "ENETUNREACH",
  "EHOSTDOWN",
  "EHOSTUNREACH",
  "ENOTFOUND",
  "EPROTO",
  "ERR_NETWORK",
  "ERR_STREAM_PREMATURE_CLOSE",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_SOCKET",
  "UND_ERR_RES_CONTENT_LENGTH_MISMATCH",
  "UND_ERR_PRX_TLS",
  "CERT_HAS_EXPIRED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
]);
const NETWORK_CODE_PREFIX = /^(EAI_|ERR_TLS_|ERR_SSL_)/;

/** Whether a thrown value is an infrastructure failure, and what shows it: an HTTP status or a network error. */
export interface Classification {
  transient: boolean;
  evidence?: string;
}

/** Classify what a program threw; a boolean property `retryable` takes precedence. */
export function classify(thrown: unknown): Classification {
  const queue = isHolder(thrown) ? [thrown] : [];
  let rejected: Classification = { transient: false };
  for (const value of queue) {
    const retryable = read(value, "retryable") ?? read(value, LANGCHAIN_RETRYABLE);
    if (retryable === true) return { transient: true };
    const status = httpStatus(value);
    if (status !== undefined) {
      const verdict = {
        transient: retryable !== false && isTransientStatus(value, status),
        evidence: about(value, status),
      };
      if (verdict.transient) return verdict;
      rejected = rejected.evidence === undefined ? verdict : rejected;
    } else if (retryable !== false && isNetworkError(value)) {
      return value === thrown ? { transient: true } : { transient: true, evidence: about(value) };
    } else if (retryable !== false) {
      for (const behind of valuesBehind(value)) {
        if (queue.length < MAX_VALUES && !queue.includes(behind)) queue.push(behind);
      }
    }
  }
  return rejected;
}

function valuesBehind(value: object): object[] {
  const last = read(value, "lastError");
  if (isHolder(last)) return [last];
  const errors = read(value, "errors");
  const listed = Array.isArray(errors) ? errors.slice(0, MAX_VALUES) : [];
  return [read(value, "cause"), ...listed, ...ownValues(value).filter(isError)].filter(isHolder);
}

/** The status from 400 to 599 of an error or its response. A number in `code` alone may be the program's own. */
function httpStatus(value: object): number | undefined {
  const response = read(value, "response");
  const found = ["statusCode", "status", "status_code"].map((name) => read(value, name));
  if (isHolder(response)) found.push(read(response, "status"), read(response, "statusCode"));
  found.push(read(read(value, "$metadata"), "httpStatusCode"));
  if (isHolder(response) || isHolder(read(value, "headers"))) found.push(Number(read(value, "code")));
  return found.find((number): number is number => typeof number === "number" && number >= 400 && number <= 599);
}

/** `$retryable` is how the AWS SDK marks throttling, which some services answer with status 400. */
function isTransientStatus(value: object, status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500 || isHolder(read(value, "$retryable"));
}

function isNetworkError(value: object): boolean {
  const code = read(value, "code");
  if (typeof code === "string" && (NETWORK_CODES.has(code) || NETWORK_CODE_PREFIX.test(code))) return true;
  if (namesOf(value).some((name) => NAMES.has(name))) return true;
  // `fetch` explains its failure by a cause, which an error that was copied has lost.
  return value instanceof TypeError && read(value, "message") === "fetch failed" && read(value, "cause") === undefined;
}

function about(value: object, status?: number): string {
  const [own, constructed] = namesOf(value);
  const name = own === "Error" ? constructed : own;
  if (status === undefined) return `${name}: ${String(read(value, "message") ?? "").slice(0, MAX_MESSAGE)}`;
  const host = hostOf(value);
  return `HTTP ${status}${host === undefined ? "" : ` from ${host}`}, ${name}`;
}

/** Host and port that answered: the rest of a URL may hold a key. */
function hostOf(value: object): string | undefined {
  for (const holder of [value, read(value, "response"), read(value, "request"), read(value, "config")]) {
    const url = read(holder, "url");
    if (typeof url === "string" && URL.canParse(url)) return new URL(url).host;
  }
  return undefined;
}

/** The `name` of an error and the name of its class. */
export function namesOf(error: object): [string, string] {
  const own = read(error, "name");
  const constructed = read(read(error, "constructor"), "name");
  return [
    typeof own === "string" && own !== "" ? own : "Error",
    typeof constructed === "string" && constructed !== "" ? constructed : "Error",
  ];
}

/** Read a property; undefined if that throws: a getter is the program's code. */
function read(holder: unknown, name: string | symbol): unknown {
  try {
    return isHolder(holder) || typeof holder === "function"
      ? (holder as Record<string | symbol, unknown>)[name]
      : undefined;
  } catch {
    return undefined;
  }
}

/** The values of the object's own properties; no getter is run. */
function ownValues(value: object): unknown[] {
  try {
    return Object.values(Object.getOwnPropertyDescriptors(value))
      .slice(0, MAX_VALUES)
      .map((property) => property.value);
  } catch {
    return [];
  }
}

/** An error of any realm. */
function isError(value: unknown): boolean {
  try {
    return value instanceof Error || Object.prototype.toString.call(value) === "[object Error]";
  } catch {
    return false;
  }
}

function isHolder(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
