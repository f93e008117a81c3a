/** The Pareto front of some candidates, by the rule of gepa_client/analysis/gepa_result.py. */

export interface Scored {
  readonly index: number;
  /** Aligned with the validation rows; NaN for a missing score. */
  readonly scores: Float64Array;
  readonly objectives: Readonly<Record<string, number>>;
}

/** Return the indices of the candidates that score best on a row, an objective, or either. */
export function paretoFront(candidates: readonly Scored[], frontType: string): Set<number> {
  const front = new Set<number>();
  if (frontType !== "objective") bestByRow(candidates, front);
  if (frontType !== "instance") bestByObjective(candidates, front);
  return front;
}

function bestByRow(candidates: readonly Scored[], front: Set<number>): void {
  const rows = candidates.reduce((most, each) => Math.max(most, each.scores.length), 0);
  const highest = new Float64Array(rows).fill(Number.NEGATIVE_INFINITY);
  for (const { scores } of candidates) {
    for (let row = 0; row < scores.length; row += 1) {
      const score = scores[row] as number;
      if (score > (highest[row] as number)) highest[row] = score; // false for NaN
    }
  }
  for (const { index, scores } of candidates) {
    for (let row = 0; row < scores.length; row += 1) {
      if (scores[row] === highest[row]) {
        front.add(index);
        break;
      }
    }
  }
}

function bestByObjective(candidates: readonly Scored[], front: Set<number>): void {
  const highest = new Map<string, number>();
  for (const { objectives } of candidates) {
    for (const [name, mean] of Object.entries(objectives)) {
      highest.set(name, Math.max(mean, highest.get(name) ?? Number.NEGATIVE_INFINITY));
    }
  }
  for (const { index, objectives } of candidates) {
    if (Object.entries(objectives).some(([name, mean]) => mean === highest.get(name))) front.add(index);
  }
}
