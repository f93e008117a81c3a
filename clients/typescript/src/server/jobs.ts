/** A job: one piece of work for the program, its progress, and its answer as text. */

import type { Cancellation } from "../base/cancellation.js";
import type { Log } from "../base/notices.js";
import { RpcError } from "../base/rpc-error.js";
import { InternalError } from "../generated/errors.js";
import type { PartialResult, Progress } from "../generated/types.js";

/** Work that was checked and admitted. */
export interface Job {
  readonly progress: Progress;
  /** Return the results of finished examples; absent for a job without examples of its own. */
  readonly finishedResults?: () => PartialResult[];
  /** Run the job, once. Throws an `RpcError` if that is the answer. */
  run(cancellation: Cancellation): Promise<unknown>;
}

/** An answer as JSON text, made when the job ends, so that later changes to the value have no effect. */
export type Answer = { result: string } | { error: string };

/** Run a job to its answer. What is not an `RpcError` is logged here and sent as "Internal error", without text. */
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

/** Approximate bytes of a text in memory: one byte a character if all are Latin-1, else two. */
export function sizeOf(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the range of Latin-1 begins with them
  return /^[\u0000-\u00ff]*$/.test(text) ? text.length : 2 * text.length;
}
