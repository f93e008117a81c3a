/** What the score of a candidate is called: scores of test rows, which follow the search, are others. */

import type { View } from "../state/view";

export function scoreName({ onTraining }: Pick<View, "onTraining">): string {
  return onTraining ? "training score" : "validation score";
}
