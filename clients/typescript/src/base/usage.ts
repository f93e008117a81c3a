/** Sums of what calls of models cost. */

import type { ModelUsage, Usage } from "../generated/types.js";
import { isObject } from "./values.js";

/** What is unknown of a sum if it is unknown of one of its parts; the parts of the input are zero then. */
const SUMS = ["input_tokens", "output_tokens", "cost_usd"] as const;

/** What two parts of an attempt cost, by model too; what is no number is left for the check of the result to find. */
export function summed(usage: Usage, more: Usage): Usage {
  return addedUp({ ...usage }, { ...more }) as Usage;
}

function addedUp(usage: Record<string, unknown>, more: Record<string, unknown>): Record<string, unknown> {
  const total = { ...usage };
  for (const [name, amount] of Object.entries(more)) {
    const known = usage[name];
    if (typeof known === "number" && typeof amount === "number") total[name] = known + amount;
    else total[name] = isObject(known) && isObject(amount) ? addedUp(known, amount) : (amount ?? null);
  }
  return total;
}

/** Return the usage of calls together: what is unknown of one of them is unknown of all. */
export function joined(usage: Usage | undefined, more: Usage): Usage {
  if (usage === undefined) return more;
  const total = joinedCounts(summed(usage, more), usage, more);
  for (const [model, counts] of Object.entries(total.models ?? {})) {
    const both = [usage.models?.[model], more.models?.[model]];
    if (both[0] && both[1]) joinedCounts(counts, both[0], both[1]);
  }
  return total;
}

function joinedCounts<Counts extends Usage | ModelUsage>(total: Counts, ...parts: Counts[]): Counts {
  for (const name of SUMS) {
    if (parts.some((part) => (part as Usage)[name] === undefined)) delete (total as Usage)[name];
  }
  return total;
}
