/** Return on how many rows a candidate has a score. */
export function scoredRows(scores: ArrayLike<number>): number {
  return Array.from(scores).filter((each) => !Number.isNaN(each)).length;
}
