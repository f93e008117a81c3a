/** The points of the plot of progress: candidates, the best score so far, and over metric calls the other proposals. */

import type { Budget, Proposal } from "../generated/events";
import type { Candidate } from "./reduce";
import { LIVE, type View } from "./view";

export type Axis = "calls" | "time" | "cost";

/** `x`: metric calls, seconds since 1970, or US dollars. */
export interface Point {
  readonly x: number;
  readonly candidate: Candidate;
  /** The best score of all candidates up to this one. */
  readonly best: number;
}

export interface Mark {
  readonly x: number;
  readonly proposal: Proposal;
}

export interface Progress {
  readonly points: readonly Point[];
  readonly marks: readonly Mark[];
  /** Where the run ended or is; null if that is not known on this axis. */
  readonly end: number | null;
  /** Candidates without a value on this axis. */
  readonly missing: number;
}

export function progress(view: View, axis: Axis): Progress {
  const points: Point[] = [];
  let best = Number.NEGATIVE_INFINITY;
  for (const candidate of view.candidates) {
    best = Math.max(best, candidate.score);
    const x = place(candidate, axis);
    if (x !== null) points.push({ x, candidate, best });
  }
  const marks: Mark[] = [];
  for (const proposal of view.proposals) {
    if (proposal.outcome === "kept" || proposal.outcome === "pending" || axis !== "calls") continue;
    const x = callsBy(view, proposal.decided ?? proposal.at);
    if (x !== null) marks.push({ x, proposal });
  }
  return {
    points: points.sort((a, b) => a.x - b.x),
    marks,
    end: endOf(view, axis),
    missing: view.candidates.length - points.length,
  };
}

function endOf({ at, latest: { run }, metricCalls }: View, axis: Axis): number | null {
  if (axis === "calls") return metricCalls;
  return axis === "time" && at === LIVE && run?.completed ? Date.parse(run.completed) / 1000 : null;
}

function place(candidate: Candidate, axis: Axis): number | null {
  if (axis === "calls") return candidate.metric_calls;
  if (axis === "cost") return candidate.cost_usd;
  const found = candidate.found === null ? Number.NaN : Date.parse(candidate.found) / 1000;
  return Number.isNaN(found) ? null : found;
}

/** The metric calls at a place of the journal, by a straight line between the counts and from (0, 0); null without counts. */
export function callsBy({ metricCallCounts: counts }: View, place: number): number | null {
  let low = 0;
  let high = counts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (((counts[middle] as Budget).at ?? 0) < place) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [counts[low - 1], counts[low]];
  if (after === undefined) return before?.metric_calls ?? null;
  const [start, end, calls] = [before?.at ?? 0, after.at ?? 0, before?.metric_calls ?? 0];
  return end > start ? calls + ((after.metric_calls - calls) * (place - start)) / (end - start) : after.metric_calls;
}
