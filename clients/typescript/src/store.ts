/** What an instance remembers between calls: answers by `call_id` and trajectories by ref. */

import { Calls } from "./calls.js";
import { namesOf, seconds, wholeNumber } from "./setup.js";
import { Traces } from "./traces.js";

export interface StoreOptions {
  /** Seconds a running call goes on without anyone asking for it; 60 when not given. */
  abandonAfterS?: number;
  /** Seconds an answer is kept after it was last asked for; 3600 when not given. */
  keepAnswersS?: number;
  /** Bytes of all kept answers; 256 MiB when not given. */
  maxAnswerBytes?: number;
  /** Bytes of all kept trajectories; 256 MiB when not given. */
  maxTraceBytes?: number;
}

/** Their names. */
export const STORE_OPTIONS = namesOf<StoreOptions>({
  abandonAfterS: 1,
  keepAnswersS: 1,
  maxAnswerBytes: 1,
  maxTraceBytes: 1,
});

/**
 * Memory of this process, bounded. Every request of a client must reach the process that holds it: on a platform that
 * starts many, leave it out, and the server offers what needs no memory.
 */
export class MemoryStore {
  readonly abandonAfterS: number;
  readonly keepAnswersS: number;
  readonly calls: Calls;
  readonly traces: Traces;

  constructor(options: StoreOptions = {}) {
    this.abandonAfterS = seconds("abandonAfterS", options.abandonAfterS ?? 60);
    this.keepAnswersS = seconds("keepAnswersS", options.keepAnswersS ?? 3600);
    this.calls = new Calls({
      abandonAfterS: this.abandonAfterS,
      keepAnswersS: this.keepAnswersS,
      maxAnswerBytes: wholeNumber("maxAnswerBytes", options.maxAnswerBytes ?? 256 * 2 ** 20, 0),
    });
    this.traces = new Traces(wholeNumber("maxTraceBytes", options.maxTraceBytes ?? 256 * 2 ** 20, 0));
  }
}
