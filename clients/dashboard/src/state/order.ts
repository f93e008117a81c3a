/** Orders of the validation rows. */

export interface Scored {
  /** Aligned with the validation rows; NaN for a missing score. */
  readonly scores: Float64Array;
}

/** Return the mean score of each row over the candidates that have one; NaN if none has. */
export function rowMeans(candidates: readonly Scored[], rows: number): Float64Array {
  return Float64Array.from({ length: rows }, (_, row) => {
    let [sum, known] = [0, 0];
    for (const { scores } of candidates) {
      const score = scores[row] ?? Number.NaN;
      if (Number.isNaN(score)) continue;
      sum += score;
      known += 1;
    }
    return sum / known;
  });
}

export function asRecorded(rows: number): Uint32Array {
  return Uint32Array.from({ length: rows }, (_, row) => row);
}

/** Return the places of rows, the lowest mean first; rows without a score last. */
export function byDifficulty(means: Float64Array): Uint32Array {
  const key = (row: number) => (Number.isNaN(means[row]) ? Number.POSITIVE_INFINITY : (means[row] as number));
  return asRecorded(means.length).sort((a, b) => {
    const [first, second] = [key(a), key(b)];
    return first < second ? -1 : first > second ? 1 : a - b;
  });
}
