/** What a span states of a step, by the conventions of GenAI, OpenInference and the AI SDK. */

import { isObject } from "../base/values.js";
import { SPANS } from "../generated/spans.js";
import type { ExampleError, ModelUsage, Step, Usage } from "../generated/types.js";
import type { Candidate } from "../program/program.js";
import { type Attributes, firstOf, parsed, type Span, textOfJson } from "./span-attributes.js";
import { inputMessages, isSystem, type Message, outputMessages } from "./span-messages.js";

type Kind = "model" | "tool" | "agent" | "chain";

const STATUS_OK = 1;
const STATUS_UNSET = 0;

const { OPERATIONS, OPENINFERENCE_KINDS, SHORTEST_TEXT, LONGEST_MODEL } = SPANS;

/** The names of counts, in the order in which they are looked for: also those of the AI SDK, and one of `ModelCall`. */
export const TOKENS = {
  ...SPANS.TOKENS,
  cached_input_tokens: [...SPANS.TOKENS.cached_input_tokens, "ai.usage.cachedInputTokens"],
  cache_write_tokens: [...SPANS.TOKENS.cache_write_tokens, "ai.usage.inputTokenDetails.cacheWriteTokens"],
  cache_write_hour_tokens: ["evolverpc.usage.cache_write_hour_tokens"],
} as const;

/** Whether a span is one of a model call, a tool, an agent or a chain; undefined for any other. */
export function spanKind(attributes: Attributes): Kind | undefined {
  const aiSdk = attributes["ai.operationId"];
  if (typeof aiSdk === "string") {
    if (aiSdk === "ai.toolCall") return "tool";
    return /\.do[^.]*$/.test(aiSdk) ? "model" : "agent";
  }
  const operation = attributes["gen_ai.operation.name"];
  const kind =
    own(OPERATIONS, String(operation)) ??
    own(OPENINFERENCE_KINDS, String(attributes["openinference.span.kind"]).toUpperCase());
  return kind === undefined && operation === undefined && "gen_ai.system" in attributes ? "model" : kind;
}

/** The values of a span's step; undefined for a span of no step. */
export function stepOfSpan(span: Span, candidate: Candidate): { kind: Kind; values: Step } | undefined {
  const { attributes } = span;
  const kind = spanKind(attributes);
  if (kind === undefined) return undefined;
  const messages = inputMessages(span);
  const component = componentOf(span.name, attributes, kind, messages, candidate);
  if (kind === "chain" && component === undefined) return undefined; // frameworks have chains for their own parts
  const model = modelOf(attributes);
  const name = String(firstOf(attributes, "gen_ai.tool.name", "tool.name", "ai.toolCall.name") ?? span.name);
  const inputs = inputsOf(attributes, kind, messages);
  if (kind === "model" && model) inputs.model = model;
  const error = errorOf(span);
  const values: Step = {
    ...(component === undefined ? { name } : { component }),
    inputs,
    outputs: outputsOf(span, kind),
    ...(error === undefined ? {} : { error }),
    ...(kind === "model" ? { usage: spanUsage(attributes) } : {}),
    ...(span.ended ? { seconds: span.duration[0] + span.duration[1] / 1e9 } : {}),
  };
  return { kind, values };
}

function modelOf(attributes: Attributes): unknown {
  return firstOf(attributes, "gen_ai.request.model", "gen_ai.response.model", "llm.model_name");
}

function componentOf(
  name: string,
  attributes: Attributes,
  kind: Kind,
  messages: readonly Message[],
  candidate: Candidate,
): string | undefined {
  const given = attributes["evolverpc.component"];
  if (typeof given === "string") return given;
  if (Object.hasOwn(candidate, name)) return name;
  if (kind === "tool") return undefined; // it may state the agent that called it
  const agent = firstOf(attributes, "gen_ai.agent.name", "ai.telemetry.functionId");
  if (typeof agent === "string" && Object.hasOwn(candidate, agent)) return agent;
  const system = messages
    .filter(isSystem)
    .map(({ content }) => String(content))
    .join("\n");
  let found: [component: string, length: number] | undefined;
  for (const [component, text] of Object.entries(candidate)) {
    const { length } = text.trim();
    if (length >= SHORTEST_TEXT && length > (found?.[1] ?? 0) && system.includes(text.trim()))
      found = [component, length];
  }
  return found?.[0];
}

function inputsOf(attributes: Attributes, kind: Kind, messages: readonly Message[]): Record<string, unknown> {
  // An agent may state its instructions alone.
  if (messages.some((each) => !isSystem(each)) || (messages.length > 0 && kind === "model")) return { messages };
  const given = parsed(firstOf(attributes, "gen_ai.tool.call.arguments", "ai.toolCall.args", "input.value"));
  if (given === undefined) return {};
  return isObject(given) ? { ...given } : { input: given };
}

function outputsOf(span: Span, kind: Kind): unknown {
  const { attributes } = span;
  const messages = kind === "tool" ? [] : outputMessages(span, kind === "agent");
  const [only] = messages;
  if (only === undefined) {
    const result = firstOf(attributes, "gen_ai.tool.call.result", "ai.toolCall.result");
    return parsed(textOfJson(result) ?? firstOf(attributes, "ai.response.object", "output.value")) ?? null;
  }
  return messages.length === 1 && only.tool_calls === undefined ? only.content : messages;
}

/** What a model call cost, by its span. */
export function spanUsage(attributes: Attributes): Usage {
  const model = modelOf(attributes);
  const counts: ModelUsage = {};
  for (const [name, sources] of Object.entries(TOKENS) as [keyof ModelUsage, readonly string[]][]) {
    const count = firstOf(attributes, ...sources);
    if (typeof count === "number" && Number.isSafeInteger(count) && count >= 0) counts[name] = count;
  }
  const cost = firstOf(attributes, "gen_ai.usage.cost", "llm.cost.total");
  const usage: Usage =
    typeof cost === "number" && Number.isFinite(cost) && cost >= 0 ? { calls: 1, cost_usd: cost } : { calls: 1 };
  const {
    cached_input_tokens: _cached,
    cache_write_tokens: _written,
    cache_write_hour_tokens: _hour,
    ...sums
  } = counts;
  if (typeof model !== "string" || model === "" || model.length > LONGEST_MODEL) return { ...usage, ...sums };
  if (counts.input_tokens === undefined || counts.output_tokens === undefined)
    return { ...usage, models: { [model]: { calls: 1 } } };
  return { ...usage, ...sums, models: { [model]: { calls: 1, ...counts } } };
}

function errorOf({ attributes, events, status }: Span): ExampleError | undefined {
  const raised = events.filter(({ name }) => name === "exception");
  if (status.code === STATUS_OK || (status.code === STATUS_UNSET && raised.length === 0)) return undefined;
  const exception = raised.at(-1)?.attributes ?? {};
  const named = String(exception["exception.type"] || attributes["error.type"] || "error");
  const type = named.slice(named.lastIndexOf(".") + 1);
  return { type, message: String(exception["exception.message"] || status.message || type) };
}

function own<Value>(table: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}
