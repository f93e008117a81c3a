/** What each way of serving adds to a program: capabilities, and the memory they need. */

import { Calls } from "./calls.js";
import type { Limits } from "./generated/types.js";
import type { MemoryStore } from "./store.js";
import type { Traces } from "./traces.js";

/** Capabilities of the way a program is served, and the memory behind them. */
export interface Carrier {
  offers: readonly string[];
  calls?: Calls;
  traces?: Traces;
  /** Whether the peer enforces deadlines: then none is kept here. */
  peerKeepsTime?: boolean;
  /** Limits that go with the memory. */
  limits?: Pick<Limits, "abandon_after_s" | "keep_answers_s">;
}

/** HTTP; without a store every call stands alone. */
export function storeCarrier(store: MemoryStore | undefined): Carrier {
  if (store === undefined) return { offers: ["batch"] };
  return {
    offers: ["batch", "idempotency", "async", "cancel", "refs"],
    calls: store.calls,
    traces: store.traces,
    limits: { abandon_after_s: store.abandonAfterS, keep_answers_s: store.keepAnswersS },
  };
}

/** A pipe to one server, which remembers for itself: calls have ids only so that they can be cancelled. */
export function stdioCarrier(): Carrier {
  return {
    offers: ["cancel"],
    calls: new Calls({ abandonAfterS: Number.POSITIVE_INFINITY, keepAnswersS: 0, maxAnswerBytes: 0 }),
    peerKeepsTime: true,
  };
}
