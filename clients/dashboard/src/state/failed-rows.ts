/** The validation rows on which the program failed with a candidate. */

import type { FailureCounts, Run } from "../generated/events";

/**
 * Return 1 by place of each row that failed; null if none did. A row that the program failed on at one time and scored
 * at another is no failure: failures have the run's failure score.
 */
export function failedRows(
  digest: string,
  scores: Float64Array,
  failures: FailureCounts | undefined,
  run: Run | undefined,
): Uint8Array | null {
  const cells = failures?.cells[digest];
  if (cells === undefined) return null;
  const failureScore = run?.settings.failure_score ?? 0;
  const failed = new Uint8Array(scores.length);
  for (const row of cells) {
    const score = scores[row] ?? Number.NaN;
    if (row < failed.length && (Number.isNaN(score) || score === failureScore)) failed[row] = 1;
  }
  return failed;
}
