/** The last change of the best candidate: its parent, the rows that it moved, and what its iteration took. */

import type { Proposal } from "../generated/events";
import { placesMoved } from "./moved-rows";
import type { Candidate } from "./reduce";
import type { View } from "./view";

/** `better`, `worse`: places of validation rows. `calls`: metric calls of its iteration; null if they are not known. */
export interface LastChange {
  readonly parent: Candidate;
  readonly candidate: Candidate;
  readonly better: readonly number[];
  readonly worse: readonly number[];
  readonly proposal: Proposal | undefined;
  readonly calls: number | null;
}

/** Return the change; null if the best candidate is the seed. */
export function lastChange(view: View): LastChange | null {
  const candidate = view.candidates.find(({ index }) => index === view.best);
  const parent = candidate === undefined ? undefined : parentOf(view, candidate);
  if (candidate === undefined || parent === undefined) return null;
  const proposal = view.proposals.find((each) => each.candidate === candidate.index);
  return {
    parent,
    candidate,
    better: placesMoved(parent, candidate, 1),
    worse: placesMoved(parent, candidate, -1),
    proposal,
    calls: callsOf(view, candidate, proposal),
  };
}

/** Return the candidate that another one is compared with: of two parents the one with the better score. */
export function parentOf(view: Pick<View, "candidates">, { parents }: Candidate): Candidate | undefined {
  const known = view.candidates.filter(({ index }) => parents.includes(index));
  return known.reduce<Candidate | undefined>(
    (best, each) => (best && best.score >= each.score ? best : each),
    undefined,
  );
}

/** The count of metric calls at the decision, less the count at the end of the iteration before. */
function callsOf(view: View, candidate: Candidate, proposal: Proposal | undefined): number | null {
  const ends = [
    ...view.candidates.filter(({ iteration }) => iteration < candidate.iteration).map(({ at }) => at),
    ...view.iterations.filter(({ iteration }) => iteration < candidate.iteration).map(({ at }) => at),
    ...view.proposals.flatMap(({ iteration, decided }) =>
      iteration !== null && iteration < candidate.iteration && decided !== null ? [decided] : [],
    ),
  ];
  const began = Math.max(0, ...ends);
  const [before, after] = [began, proposal?.decided ?? candidate.at].map((place) =>
    view.metricCallCounts.findLast(({ at }) => at <= place),
  );
  return before === undefined || after === undefined ? null : after.metric_calls - before.metric_calls;
}
