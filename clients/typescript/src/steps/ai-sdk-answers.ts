/** What calls of models return in the AI SDK. */

import { isObject } from "../base/values.js";
import type { ModelUsage } from "../generated/types.js";
import type { Answered } from "./model-calls.js";

/** Return the message and the usage of a result: `{content, usage}`. */
export function answered(result: unknown): Answered {
  const { content, usage } = isObject(result) ? result : {};
  const parts = Array.isArray(content) ? content.filter((part) => isObject(part) && part.type !== "reasoning") : [];
  return { messages: [{ role: "assistant", content: parts }], usage: isObject(usage) ? counted(usage) : undefined };
}

/** The counts of versions 3 and later of the models' specification, and those of version 2. */
function counted(usage: Record<string, unknown>): ModelUsage | undefined {
  const input = isObject(usage.inputTokens) ? usage.inputTokens : { total: usage.inputTokens };
  const output = isObject(usage.outputTokens) ? usage.outputTokens : { total: usage.outputTokens };
  if (typeof input.total !== "number" || typeof output.total !== "number") return undefined;
  const parts = {
    cached_input_tokens: input.cacheRead ?? usage.cachedInputTokens,
    cache_write_tokens: input.cacheWrite,
  };
  const known = Object.entries(parts).filter(([, count]) => typeof count === "number" && count > 0);
  return { input_tokens: input.total, output_tokens: output.total, ...Object.fromEntries(known) };
}
