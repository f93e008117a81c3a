/** The rows on which one candidate is better, worse or the same as another one. */

import type { Candidate } from "./reduce";

type Scored = Pick<Candidate, "scores">;

/** Return how many rows are better, worse and the same with the second candidate. */
export function movedRows(before: Scored, after: Scored) {
  let [better, worse, same] = [0, 0, 0];
  for (let row = 0; row < after.scores.length; row += 1) {
    const difference = (after.scores[row] as number) - (before.scores[row] ?? Number.NaN);
    if (difference > 0) better += 1;
    else if (difference < 0) worse += 1;
    else if (difference === 0) same += 1;
  }
  return { better, worse, same };
}

/** Return the lowest score of a candidate; Infinity if it has none. */
export function lowestScore({ scores }: Scored): number {
  return scores.reduce(
    (least, score) => Math.min(least, Number.isNaN(score) ? least : score),
    Number.POSITIVE_INFINITY,
  );
}

/** Return the places of the rows on which a candidate has its lowest score. */
export function placesLowest(candidate: Scored): number[] {
  const lowest = lowestScore(candidate);
  return [...candidate.scores.keys()].filter((row) => candidate.scores[row] === lowest);
}
