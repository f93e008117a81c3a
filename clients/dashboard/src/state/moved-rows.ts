/** On how many rows one candidate is better, worse or the same as another one. */

import type { Candidate } from "./reduce";

export function movedRows(before: Candidate, after: Candidate) {
  let [better, worse, same] = [0, 0, 0];
  for (let row = 0; row < after.scores.length; row += 1) {
    const difference = (after.scores[row] as number) - (before.scores[row] ?? Number.NaN);
    if (difference > 0) better += 1;
    else if (difference < 0) worse += 1;
    else if (difference === 0) same += 1;
  }
  return { better, worse, same };
}
