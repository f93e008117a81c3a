/** The two scores of a run: of its seed and of its best candidate. */

import type { View } from "./view";

export interface Headline {
  readonly seed: number;
  readonly best: number;
  /** How many of the compared rows are validation rows that the search left out; 0 if both were not compared. */
  readonly left: number;
}

/** Return them; null before there is a score. At an earlier entry they are those of the search. */
export function headlineOf({ candidates, best: index, ties }: View): Headline | null {
  const seed = candidates[0];
  const best = candidates.find((each) => each.index === index);
  if (seed === undefined || best === undefined) return null;
  if (ties !== undefined && ties.validation_left > 0) {
    const [ofSeed, ofBest] = [0, ties.best].map((wanted) => ties.candidates.find((each) => each.index === wanted));
    if (ofSeed !== undefined && ofBest !== undefined) {
      return { seed: ofSeed.mean, best: ofBest.mean, left: ties.validation_left };
    }
  }
  return { seed: seed.score, best: best.score, left: 0 };
}
