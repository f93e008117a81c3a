/** What a program threw or returned in breach of the contract, and how the contract describes it. */

import type { ExampleError } from "../generated/types.js";
import { wellFormed } from "./json.js";
import { isObject, nameOf, shown } from "./values.js";

const MAX_MESSAGE = 8 * 1024;
const MAX_TRACEBACK = 32 * 1024;

/** Class name, message and stack; the message ends with the evidence for the failure's kind. */
export function describeFailure(error: unknown, evidence?: string): ExampleError {
  if (!isObject(error)) return { type: typeof error, message: clipped(String(error), MAX_MESSAGE) };
  const type = wellFormed(nameOf(error));
  const message = typeof error.message === "string" && error.message !== "" ? error.message : type;
  const described: ExampleError = { type, message: clipped(message, MAX_MESSAGE) };
  if (evidence !== undefined) described.message += wellFormed(` [${evidence}]`);
  if (typeof error.stack === "string") described.traceback = clipped(usersFrames(error.stack), MAX_TRACEBACK);
  return described;
}

/** The function every call into a program goes through; frames from here on are this package's. */
export async function invokeProgram<Result>(call: () => Result | Promise<Result>): Promise<Result> {
  return await call();
}

function usersFrames(stack: string): string {
  const lines = stack.split("\n");
  const ours = lines.findIndex((line) => /\bat (async )?invokeProgram\b/.test(line));
  return (
    ours === -1 ? lines : lines.slice(0, ours).filter((line) => !/^\s+at (async )?runWithDeadline\b/.test(line))
  ).join("\n");
}

function clipped(text: string, most: number): string {
  return wellFormed(text.length <= most ? text : `${text.slice(0, most)} ...`);
}

/** A program's answer that breaks the contract: its example fails with this message. */
export class InvalidResult extends Error {}

/** Return a number; a boolean counts as 1 or 0, as in Python. Throws `InvalidResult`, which calls the value `what`. */
export function finite(value: unknown, what: string): number {
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new InvalidResult(`${what} must be a finite number, not ${shown(value)}`);
}
