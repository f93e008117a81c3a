/** The state of an instance between calls, and the transports: what each offers because of the state it has. */

import { type OptionsOf, type ReadBy, readOptions, seconds, wholeNumber } from "../base/configuration.js";
import type { Limits } from "../generated/types.js";
import { Calls } from "./calls.js";
import { TrajectoryStore } from "./traces.js";

/** What each is for, and how it is read. */
export const STORE_OPTIONS = {
  /** Seconds after which a running call that no request waits for is cancelled; default 60. */
  abandonAfterS: seconds(60),
  /** Seconds for which an answer is kept after it was last requested; default 3600. */
  keepAnswersS: seconds(3600),
  /** Bytes of all stored answers; the least recently requested one is evicted first, the newest never; default 256 MiB. */
  maxAnswerBytes: wholeNumber(0, 256 * 2 ** 20),
  /** Bytes of all stored trajectories; default 256 MiB. */
  maxTraceBytes: wholeNumber(0, 256 * 2 ** 20),
};

export type StoreOptions = OptionsOf<typeof STORE_OPTIONS>;
export type CallBounds = Omit<ReadBy<typeof STORE_OPTIONS>, "maxTraceBytes">;

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

/** The capabilities that a transport adds to a program, and the state behind them. */
export interface Transport extends Partial<MemoryStore> {
  offers: readonly string[];
  traces: TrajectoryStore;
  /** Whether the peer enforces deadlines, so that none is enforced here. */
  peerEnforcesDeadlines?: boolean;
}

/** HTTP; without a store every call is independent. */
export function httpTransport(store: MemoryStore | undefined): Transport {
  if (store === undefined) return { offers: ["batch", "example_timeout"], traces: new TrajectoryStore(0) };
  return { offers: ["batch", "idempotency", "async", "partial", "cancel", "example_timeout", "refs"], ...store };
}

/** A pipe to one server, which keeps its own state: calls have ids only so that they can be cancelled. */
export function stdioTransport(): Transport {
  return {
    offers: ["cancel"],
    calls: new Calls({ abandonAfterS: Number.POSITIVE_INFINITY, keepAnswersS: 0, maxAnswerBytes: 0 }),
    traces: new TrajectoryStore(0),
    peerEnforcesDeadlines: true,
  };
}
