/** What a thrown value means: whose fault it was, and what to tell about it. */

import type { ExampleError } from "./generated/types.js";
import { wellFormed } from "./json.js";
import { isObject } from "./values.js";

const MAX_MESSAGE = 8 * 1024;
const MAX_TRACEBACK = 32 * 1024;

/** Class names by which the SDKs of model providers say "not now". */
const TRANSIENT_NAMES = new Set([
  "RateLimitError",
  "APIConnectionError",
  "APIConnectionTimeoutError",
  "InternalServerError",
  "OverloadedError",
]);

const TRANSIENT_CODES = new Set(["ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN"]);

/** True where the failure is a provider's or the network's: nobody's verdict, worth another attempt. */
export function isTransient(error: unknown): boolean {
  if (typeof error !== "object" || error === null) return false;
  if ("retryable" in error && typeof error.retryable === "boolean") return error.retryable;
  if (namesOf(error).some((name) => TRANSIENT_NAMES.has(name))) return true;
  if (hasTransientStatus(error) || hasTransientCode(error)) return true;
  // `fetch` fails with a TypeError of no particulars; the reason is its cause.
  return error instanceof TypeError && hasTransientCode(error.cause);
}

function hasTransientStatus(error: object): boolean {
  const status = "status" in error ? error.status : undefined;
  return error instanceof Error && typeof status === "number" && (status === 429 || (status >= 500 && status <= 599));
}

function hasTransientCode(error: unknown): boolean {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return false;
  return TRANSIENT_CODES.has(error.code) || error.code.startsWith("UND_ERR_");
}

/** What is told of a thrown value: class name, message, and the user's part of the stack. */
export function describeFailure(error: unknown): ExampleError {
  if (!isObject(error)) return { type: typeof error, message: clipped(String(error), MAX_MESSAGE) };
  const type = typeName(error);
  const message = typeof error.message === "string" && error.message !== "" ? error.message : type;
  const described: ExampleError = { type, message: clipped(message, MAX_MESSAGE) };
  if (typeof error.stack === "string") described.traceback = clipped(usersFrames(error.stack), MAX_TRACEBACK);
  return described;
}

/** A `name` that was set says more than the class, which a bundler may have renamed. */
function typeName(error: object): string {
  const [own, constructed] = namesOf(error);
  return (own !== undefined && own !== "Error" ? own : constructed) ?? "Error";
}

function namesOf(error: object): string[] {
  const own = "name" in error && typeof error.name === "string" && error.name !== "" ? error.name : "Error";
  const constructed: unknown = error.constructor?.name;
  return [own, typeof constructed === "string" && constructed !== "" ? constructed : "Error"].map(wellFormed);
}

/** The function every call into a program goes through; frames from here on are this package's. */
export async function invokeProgram<Result>(call: () => Result | Promise<Result>): Promise<Result> {
  return await call();
}

function usersFrames(stack: string): string {
  const lines = stack.split("\n");
  const ours = lines.findIndex((line) => /\bat (async )?invokeProgram\b/.test(line));
  return (ours === -1 ? lines : lines.slice(0, ours).filter((line) => !/^\s+at (async )?within\b/.test(line))).join(
    "\n",
  );
}

function clipped(text: string, most: number): string {
  return wellFormed(text.length <= most ? text : `${text.slice(0, most)} ...`);
}
