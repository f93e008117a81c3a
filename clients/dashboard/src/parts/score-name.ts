/** What the score of a candidate is called, and the rows that give it: test rows, which follow the search, are others. */

import type { View } from "../state/view";

export function scoreName({ onTraining }: Pick<View, "onTraining">): string {
  return onTraining ? "training score" : "validation score";
}

/** Return `validation row`, or `training row` if no validation rows were given. */
export function selectingRow({ onTraining }: Pick<View, "onTraining">): string {
  return onTraining ? "training row" : "validation row";
}
