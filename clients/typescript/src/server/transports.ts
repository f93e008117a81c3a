/** The transports: the capabilities that each adds to a program, and the state they need. */

import type { Limits } from "../generated/types.js";
import { Calls } from "./calls.js";
import type { MemoryStore } from "./store.js";
import { TrajectoryStore } from "./traces.js";

/** The capabilities of a transport and the state behind them. */
export interface Transport {
  offers: readonly string[];
  calls?: Calls;
  traces: TrajectoryStore;
  /** Whether the peer enforces deadlines, so that none is enforced here. */
  peerEnforcesDeadlines?: boolean;
  /** Limits of the state. */
  limits?: Pick<Limits, "abandon_after_s" | "keep_answers_s">;
}

/** HTTP; without a store every call is independent. */
export function httpTransport(store: MemoryStore | undefined): Transport {
  if (store === undefined) return { offers: ["batch", "example_timeout"], traces: new TrajectoryStore(0) };
  return {
    offers: ["batch", "idempotency", "async", "partial", "cancel", "example_timeout", "refs"],
    calls: store.calls,
    traces: store.traces,
    limits: { abandon_after_s: store.abandonAfterS, keep_answers_s: store.keepAnswersS },
  };
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
