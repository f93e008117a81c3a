/** Calls with a `call_id`: run once, joined by whoever asks again, their answers kept for a while. */

import { Cancellation } from "./cancellation.js";
import { CallIdConflict, CallNotFound } from "./errors.js";
import type { CancelResult } from "./generated/types.js";
import { type Answer, answerOf, type Job, type Log, sizeOf } from "./jobs.js";
import { afterwards } from "./timers.js";

/** What a kept answer takes beyond its own bytes, about; so that many small ones are bounded too. */
const ENTRY_BYTES = 1024;

export interface CallBounds {
  /** Seconds a running call goes on without anyone asking for it. */
  abandonAfterS: number;
  /** Seconds an answer is kept after it was last asked for. */
  keepAnswersS: number;
  /** Bytes of all kept answers; the one longest unasked goes first, the newest stays in any case. */
  maxAnswerBytes: number;
}

interface Call {
  readonly id: string;
  /** A digest of what was asked. */
  readonly request: Promise<string>;
  /** Nothing else of a call that has ended is held on to: its params may be many times what its answer counts for. */
  state: Running | Answer;
  bytes: number;
  askedAt: number;
  collected: boolean;
}

/** What there is of a call until it has ended. */
interface Running {
  readonly job: Job;
  readonly cancellation: Cancellation;
  readonly finished: Promise<void>;
  /** How many wait for it now. */
  watchers: number;
  /** Stops the clock that runs while nobody asks. */
  forgiven: () => void;
}

export class Calls {
  readonly #running = new Map<string, Call>();
  /** The longest unasked first. */
  readonly #answered = new Map<string, Call>();
  #bytes = 0;

  constructor(private readonly bounds: CallBounds) {}

  /** True while a call runs, or its answer was given to nobody. */
  get outstanding(): boolean {
    this.#letGo();
    return this.#running.size > 0 || [...this.#answered.values()].some((call) => !call.collected);
  }

  /**
   * The answer of a call, begun now if it is new; undefined after `waitS` seconds, or once nobody is there to hear it.
   *
   * `request` is a digest of what is asked, `start` checks and admits it; what `start` throws is not remembered. A new
   * call is known before this function waits for anything, so that a `cancel` sent right behind it finds it.
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

  /** The answer of a call that is known; throws `CallNotFound`. */
  async get(id: string, waitS: number, listener: Cancellation): Promise<Answer> {
    return this.#watch(this.#known(id), waitS, listener);
  }

  /** Stops a call and returns when it has ended; throws `CallNotFound`. */
  async cancel(id: string): Promise<CancelResult> {
    const call = this.#known(id);
    const { state } = call;
    if (!isRunning(state)) return { status: "finished" };
    state.cancellation.cancel();
    await state.finished;
    call.collected = true; // who cancels wants no answer: a drain need not wait for somebody to fetch it
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
    this.#letGo();
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
      state: { job, cancellation, finished, watchers: 0, forgiven: () => {} },
      bytes: 0,
      askedAt: 0,
      collected: false,
    };
    this.#running.set(id, call);
    return call;
  }

  #settle(call: Call, answer: Answer): void {
    if (isRunning(call.state)) call.state.forgiven();
    call.state = answer;
    call.askedAt = performance.now();
    call.bytes = sizeOf("result" in answer ? answer.result : answer.error) + ENTRY_BYTES;
    this.#running.delete(call.id);
    this.#answered.set(call.id, call);
    this.#bytes += call.bytes;
    this.#letGo();
  }

  async #watch(call: Call, waitS: number | undefined, listener: Cancellation): Promise<Answer> {
    const { state } = call;
    if (!isRunning(state)) {
      call.collected ||= !listener.cancelled;
      return state;
    }
    state.forgiven();
    state.watchers++;
    await finishedOrOver(state.finished, waitS, listener);
    state.watchers--;
    if (!isRunning(call.state)) return this.#watch(call, waitS, listener);
    if (state.watchers === 0) {
      state.forgiven = afterwards(this.bounds.abandonAfterS, () => state.cancellation.cancel());
    }
    return { result: JSON.stringify({ pending: { call_id: call.id, progress: state.job.progress } }) };
  }

  #letGo(): void {
    const oldestKept = performance.now() - this.bounds.keepAnswersS * 1000;
    for (const [id, call] of this.#answered) {
      const tooMuch = this.#bytes > this.bounds.maxAnswerBytes && this.#answered.size > 1;
      if (call.askedAt >= oldestKept && !tooMuch) return;
      this.#answered.delete(id);
      this.#bytes -= call.bytes;
    }
  }
}

/** Waits for the end, for `waitS` seconds, or until nobody listens. */
async function finishedOrOver(
  finished: Promise<void>,
  waitS: number | undefined,
  listener: Cancellation,
): Promise<void> {
  if (listener.cancelled) return;
  await new Promise<void>((resolve) => {
    const stopTimer = waitS === undefined ? () => {} : afterwards(waitS, () => resolve());
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
