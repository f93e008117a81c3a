/** How long an example has been in flight, in words that fit the time since the last result beside it. */

import type { Now } from "../generated/events";
import { clock, duration } from "./format";

/** Return `since 21:36:07`; `for 4 min` if the time of the heartbeat is not known. `seconds`: at the last heartbeat. */
export function exampleAge(now: Pick<Now, "last_result" | "no_result_s">, seconds: number): string {
  const result = Date.parse(now.last_result ?? "");
  if (Number.isNaN(result) || now.no_result_s === null) return `for ${duration(seconds)}`;
  return `since ${clock(result + 1_000 * (now.no_result_s - seconds))}`;
}
