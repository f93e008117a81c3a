/** On which rows candidates were scored, as it stands beside each score. */

import type { View } from "../state/view";
import { counted } from "./format";

export function onRows({ rows, onTraining }: Pick<View, "rows" | "onTraining">): string {
  return onTraining
    ? `on the ${counted(rows.length, "training row")} (no validation rows were given)`
    : `on ${counted(rows.length, "validation row")}`;
}
