/** The state of an instance between calls: answers by `call_id` and trajectories by reference. */

import { type OptionsOf, readOptions, seconds, wholeNumber } from "../base/configuration.js";
import { Calls } from "./calls.js";
import { TrajectoryStore } from "./traces.js";

/** What each is for, and how it is read. */
export const STORE_OPTIONS = {
  /** Seconds after which a running call that no request waits for is cancelled; default 60. */
  abandonAfterS: seconds(60),
  /** Seconds for which an answer is kept after it was last requested; default 3600. */
  keepAnswersS: seconds(3600),
  /** Bytes of all stored answers; default 256 MiB. */
  maxAnswerBytes: wholeNumber(0, 256 * 2 ** 20),
  /** Bytes of all stored trajectories; default 256 MiB. */
  maxTraceBytes: wholeNumber(0, 256 * 2 ** 20),
};

export type StoreOptions = OptionsOf<typeof STORE_OPTIONS>;

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
    const { maxTraceBytes, ...bounds } = readOptions(options, STORE_OPTIONS);
    this.abandonAfterS = bounds.abandonAfterS;
    this.keepAnswersS = bounds.keepAnswersS;
    this.calls = new Calls(bounds);
    this.traces = new TrajectoryStore(maxTraceBytes);
  }
}
