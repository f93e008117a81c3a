/** Whether a run's examples are stuck: nothing but time-outs has come back for longer than examples usually take. */

import type { FailureGroup, LongInFlight } from "../generated/events";
import type { View } from "./view";

/** How much longer than usual an example takes that is stuck. */
const FACTOR = 10;
/** Seconds that examples wait at least before they count as stuck, and if nothing is known of how long they take. */
const LEAST_S = 30;
const UNKNOWN_S = 120;
/** After so many time-outs examples that wait are stuck sooner; at once if nothing else came between them. */
const REPEATED = 2;
const REPEATED_S = 10;

/** The least limit of an example that the page suggests, in seconds. */
const LEAST_LIMIT_S = 10;

/**
 * `seconds`: since the last result that was no time-out, at `since` (ISO 8601, null before the first result).
 * `timeouts`: examples that timed out since then; `recorded`: the time-outs of the whole run, of which the first one
 * has a traceback. `longest`: the examples that wait longest, of `inFlight`.
 */
export interface Stall {
  readonly seconds: number;
  readonly since: string | null;
  readonly inFlight: number;
  readonly timeouts: number;
  readonly recorded: FailureGroup | undefined;
  readonly longest: readonly LongInFlight[];
}

export function stallOf({ latest: { run, now, failures } }: View): Stall | null {
  if (run?.driven !== true || now === undefined || now.lost || now.waiting_for !== null) return null;
  const inFlight = now.in_flight ?? 0;
  if (inFlight === 0) return null;
  const recorded = failures?.groups.find(({ status }) => status === "timeout");
  const waited = now.longest[0]?.seconds ?? 0;
  const seconds = now.no_result_s ?? waited;
  if (now.timeouts >= REPEATED) {
    if (seconds < REPEATED_S) return null;
  } else {
    const usual = now.usual_s === null ? UNKNOWN_S : FACTOR * now.usual_s;
    const enough = Math.max(usual, (recorded?.count ?? 0) >= REPEATED ? REPEATED_S : LEAST_S);
    if (seconds < enough || waited < enough) return null;
  }
  return { seconds, since: now.last_result, inFlight, timeouts: now.timeouts, recorded, longest: now.longest };
}

/** Return a limit for each example, in seconds, that lets usual ones end; null if none is known that is shorter. */
export function shorterLimit({ latest: { now } }: View): number | null {
  if (now === undefined || now.usual_s === null) return null;
  const suggested = Math.max(LEAST_LIMIT_S, Math.ceil(FACTOR * now.usual_s));
  const given = now.longest[0]?.limit_s ?? null;
  return given === null || suggested < given ? suggested : null;
}
