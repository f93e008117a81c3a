/** One piece of work for the program: how far it is, and how its answer becomes text. */

import type { Cancellation } from "./cancellation.js";
import { InternalError, RpcError } from "./errors.js";
import type { Progress } from "./generated/types.js";

/** Work that was checked and admitted. */
export interface Job {
  readonly progress: Progress;
  /** Does it, once. Throws an `RpcError` where that is the answer. */
  run(cancellation: Cancellation): Promise<unknown>;
}

/** An answer as JSON text: taken when it is made, so that nothing changes it while it is kept. */
export type Answer = { result: string } | { error: string };

/** Where this server tells its operator what it keeps from its clients. */
export type Log = (message: string, error?: unknown) => void;

/** Runs a job to its answer. What is not an `RpcError` is logged here and leaves as "Internal error", without text. */
export async function answerOf(work: () => unknown, log: Log): Promise<Answer> {
  try {
    return { result: JSON.stringify(await work()) };
  } catch (error) {
    return { error: JSON.stringify(asRpcError(error, log).toWire()) };
  }
}

export function asRpcError(error: unknown, log: Log): RpcError {
  if (error instanceof RpcError) return error;
  log("unexpected error", error);
  return new InternalError();
}

/** About what a text takes in memory: runtimes keep one byte a character where all are Latin-1, else two. */
export function sizeOf(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the range of Latin-1 begins with them
  return /^[\u0000-\u00ff]*$/.test(text) ? text.length : 2 * text.length;
}
