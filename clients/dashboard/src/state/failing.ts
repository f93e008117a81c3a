/** Whether the failures of the program are what a reader needs first. */

import type { FailureGroup } from "../generated/events";
import type { View } from "./view";

/** The share of examples from which on failures come first while a run is driven. */
const MANY = 0.1;

export function failuresFirst({ latest: { run, failures } }: View): boolean {
  if (run === undefined || failures === undefined || failures.failed === 0) return false;
  if (failures.failed >= MANY * failures.evaluated) return true;
  return !run.driven && (run.status === "failed" || run.status === "paused");
}

/** The group whose traceback names the place to look at; the most frequent one if none has a traceback. */
export function firstFailure({ latest: { failures } }: View): FailureGroup | undefined {
  return failures?.groups.find(({ traceback }) => traceback) ?? failures?.groups[0];
}
