/** Jobs for the program, and those with a `call_id`: run once; a repeated request joins the call or gets its stored answer. */

import { Cancellation } from "../base/cancellation.js";
import { type ReadBy, seconds, wholeNumber } from "../base/configuration.js";
import type { Log } from "../base/notices.js";
import { RpcError } from "../base/rpc-error.js";
import { runAfter } from "../base/runtime.js";
import { CallIdConflict, CallNotFound, InternalError } from "../generated/errors.js";
import type { CancelResult, PartialResult, Progress } from "../generated/types.js";

/** What each is for, and how it is read. */
export const CALL_OPTIONS = {
  /** Seconds after which a running call that no request waits for is cancelled; default 60. */
  abandonAfterS: seconds(60),
  /** Seconds for which an answer is kept after it was last requested; default 3600. */
  keepAnswersS: seconds(3600),
  /** Bytes of all stored answers; the least recently requested one is evicted first, the newest never; default 256 MiB. */
  maxAnswerBytes: wholeNumber(0, 256 * 2 ** 20),
};

/** Approximate memory overhead of one stored answer, so that many small answers are bounded too. */
const ENTRY_BYTES = 1024;

interface Call {
  readonly id: string;
  /** Digest of the method and its params. */
  readonly request: Promise<string>;
  /** Only the answer of a finished call is kept: its params may be many times larger than the answer. */
  state: Running | Answer;
  bytes: number;
  askedAt: number;
  collected: boolean;
}

/** The state of a call that has not finished. */
interface Running {
  readonly job: Job;
  readonly cancellation: Cancellation;
  readonly finished: Promise<void>;
  /** Number of requests that wait for it now. */
  watchers: number;
  /** Stop the timer that runs while no request waits. */
  stopAbandonTimer: () => void;
}

/** Calls with a `call_id`: run once; a repeated request joins the call or gets its stored answer. */
export class Calls {
  readonly #running = new Map<string, Call>();
  /** Finished calls, least recently requested first. */
  readonly #answered = new Map<string, Call>();
  #bytes = 0;

  constructor(private readonly bounds: ReadBy<typeof CALL_OPTIONS>) {}

  /** True while a call runs or its answer has not been collected. */
  get outstanding(): boolean {
    this.#evict();
    return this.#running.size > 0 || [...this.#answered.values()].some((call) => !call.collected);
  }

  /**
   * Return the answer of a call, starting it if it is new; `pending` after `waitS` seconds or when the listener is gone.
   *
   * `request` is a digest of the request; `start` checks and admits it. What `start` throws is not stored. A new
   * call is registered before this function awaits anything, so that a `cancel` sent right behind it finds it.
   */
  async ask(
    id: string,
    request: Promise<string>,
    start: () => Job,
    { waitS, listener, log }: { waitS: number | undefined; listener: Cancellation; log: Log },
  ): Promise<Answer> {
    const known = this.#find(id);
    if (known === undefined) return this.#watch(this.#begin(id, request, start(), log), waitS, listener);
    if ((await known.request) !== (await request)) throw new CallIdConflict(undefined, { call_id: id });
    return this.#watch(known, waitS, listener);
  }

  /** Return the answer of a known call, else `pending`, if `partial` with its finished results. Throws `CallNotFound`. */
  async get(id: string, waitS: number, partial: boolean, listener: Cancellation): Promise<Answer> {
    return this.#watch(this.#known(id), waitS, listener, partial);
  }

  /** Cancel a call and return when it has ended. Throws `CallNotFound`. */
  async cancel(id: string): Promise<CancelResult> {
    const call = this.#known(id);
    const { state } = call;
    if (!isRunning(state)) return { status: "finished" };
    state.cancellation.cancel();
    await state.finished;
    call.collected = true; // the canceller wants no answer, so a drain need not wait for one to be collected
    return { status: "cancelled" };
  }

  cancelAll(): void {
    for (const { state } of this.#running.values()) if (isRunning(state)) state.cancellation.cancel();
  }

  #known(id: string): Call {
    const call = this.#find(id);
    if (call === undefined) throw new CallNotFound(undefined, { call_id: id });
    return call;
  }

  #find(id: string): Call | undefined {
    this.#evict();
    const call = this.#answered.get(id);
    if (call === undefined) return this.#running.get(id);
    call.askedAt = performance.now();
    this.#answered.delete(id);
    this.#answered.set(id, call);
    return call;
  }

  #begin(id: string, request: Promise<string>, job: Job, log: Log): Call {
    const cancellation = new Cancellation();
    const finished = answerOf(() => job.run(cancellation), log).then((answer) => this.#settle(call, answer));
    const call: Call = {
      id,
      request,
      state: { job, cancellation, finished, watchers: 0, stopAbandonTimer: () => {} },
      bytes: 0,
      askedAt: 0,
      collected: false,
    };
    this.#running.set(id, call);
    return call;
  }

  #settle(call: Call, answer: Answer): void {
    if (isRunning(call.state)) call.state.stopAbandonTimer();
    call.state = answer;
    call.askedAt = performance.now();
    call.bytes = sizeOf("result" in answer ? answer.result : answer.error) + ENTRY_BYTES;
    this.#running.delete(call.id);
    this.#answered.set(call.id, call);
    this.#bytes += call.bytes;
    this.#evict();
  }

  async #watch(call: Call, waitS: number | undefined, listener: Cancellation, partial = false): Promise<Answer> {
    const { state } = call;
    if (!isRunning(state)) {
      call.collected ||= !listener.cancelled;
      return state;
    }
    state.stopAbandonTimer();
    state.watchers++;
    await finishedOrOver(state.finished, waitS, listener);
    state.watchers--;
    if (!isRunning(call.state)) return this.#watch(call, waitS, listener);
    if (state.watchers === 0) {
      state.stopAbandonTimer = runAfter(this.bounds.abandonAfterS, () => state.cancellation.cancel());
    }
    const { progress, finishedResults } = state.job;
    const results = partial ? finishedResults?.() : undefined; // JSON.stringify leaves out what is undefined
    return { result: JSON.stringify({ pending: { call_id: call.id, progress, results } }) };
  }

  #evict(): void {
    const oldestKept = performance.now() - this.bounds.keepAnswersS * 1000;
    for (const [id, call] of this.#answered) {
      const tooMuch = this.#bytes > this.bounds.maxAnswerBytes && this.#answered.size > 1;
      if (call.askedAt >= oldestKept && !tooMuch) return;
      this.#answered.delete(id);
      this.#bytes -= call.bytes;
    }
  }
}

/** Wait until the call has finished, `waitS` seconds are over, or the listener is gone. */
async function finishedOrOver(
  finished: Promise<void>,
  waitS: number | undefined,
  listener: Cancellation,
): Promise<void> {
  if (listener.cancelled) return;
  await new Promise<void>((resolve) => {
    const stopTimer = waitS === undefined ? () => {} : runAfter(waitS, () => resolve());
    const forget = listener.onCancel(resolve);
    finished.then(() => {
      stopTimer();
      forget();
      resolve();
    });
  });
}

function isRunning(state: Running | Answer): state is Running {
  return "job" in state;
}

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
