/** Whether the outcomes of proposals that the page shows are still being read. */

import type { View } from "./view";

export function outcomesAreBeingRead({ candidates, latest: { run, position } }: View): boolean {
  if (run === undefined) return false;
  if (position === undefined) return true;
  if (!run.driven) return !position.complete;
  const newest = candidates.at(-1);
  return newest !== undefined && position.decided < newest.at;
}
