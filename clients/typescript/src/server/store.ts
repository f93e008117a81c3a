/** The state of an instance between calls, in memory: its calls and its trajectories. */

import { type OptionsOf, readOptions } from "../base/configuration.js";
import type { Limits } from "../generated/types.js";
import { CALL_OPTIONS, Calls } from "./calls.js";
import { TRACE_OPTIONS, TrajectoryStore } from "./trajectory-store.js";

/** What each is for, and how it is read. */
export const STORE_OPTIONS = { ...CALL_OPTIONS, ...TRACE_OPTIONS };

export type StoreOptions = OptionsOf<typeof STORE_OPTIONS>;

/**
 * Bounded state in the memory of this process. Every request of a client must reach this process: on a platform that
 * starts many processes, omit it, and the server offers what needs no state.
 */
export class MemoryStore {
  readonly calls: Calls;
  readonly traces: TrajectoryStore;
  /** What clients must know of its bounds. */
  readonly limits: Pick<Limits, "abandon_after_s" | "keep_answers_s">;

  constructor(options: StoreOptions = {}) {
    const { maxTraceBytes, ...bounds } = readOptions(options, STORE_OPTIONS);
    this.calls = new Calls(bounds);
    this.traces = new TrajectoryStore(maxTraceBytes);
    this.limits = { abandon_after_s: bounds.abandonAfterS, keep_answers_s: bounds.keepAnswersS };
  }
}
