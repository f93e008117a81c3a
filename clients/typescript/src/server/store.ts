/** The state of an instance between calls: answers by `call_id` and trajectories by reference. */

import { namesOf, seconds, wholeNumber } from "../base/configuration.js";
import { Calls } from "./calls.js";
import { TrajectoryStore } from "./traces.js";

export interface StoreOptions {
  /** Seconds after which a running call that no request waits for is cancelled; default 60. */
  abandonAfterS?: number;
  /** Seconds for which an answer is kept after it was last requested; default 3600. */
  keepAnswersS?: number;
  /** Bytes of all stored answers; default 256 MiB. */
  maxAnswerBytes?: number;
  /** Bytes of all stored trajectories; default 256 MiB. */
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
 * Bounded state in the memory of this process. Every request of a client must reach this process: on a platform that
 * starts many processes, omit it, and the server offers what needs no state.
 */
export class MemoryStore {
  readonly abandonAfterS: number;
  readonly keepAnswersS: number;
  readonly calls: Calls;
  readonly traces: TrajectoryStore;

  constructor(options: StoreOptions = {}) {
    this.abandonAfterS = seconds("abandonAfterS", options.abandonAfterS ?? 60);
    this.keepAnswersS = seconds("keepAnswersS", options.keepAnswersS ?? 3600);
    this.calls = new Calls({
      abandonAfterS: this.abandonAfterS,
      keepAnswersS: this.keepAnswersS,
      maxAnswerBytes: wholeNumber("maxAnswerBytes", options.maxAnswerBytes ?? 256 * 2 ** 20, 0),
    });
    this.traces = new TrajectoryStore(wholeNumber("maxTraceBytes", options.maxTraceBytes ?? 256 * 2 ** 20, 0));
  }
}
