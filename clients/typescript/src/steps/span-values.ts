/** What a span states of a step, by the conventions of GenAI, OpenInference and the AI SDK. */

import { isObject, jsonIn } from "../base/values.js";
import { SPANS } from "../generated/spans.js";
import type { ExampleError, ModelUsage, Step, Usage } from "../generated/types.js";
import type { Candidate } from "../program/program.js";

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

const SYSTEM_ROLES: readonly string[] = SPANS.SYSTEM_ROLES;
const TEXT_TYPES: readonly string[] = SPANS.TEXT_TYPES;
const CALL_TYPES: readonly string[] = [...SPANS.CALL_TYPES, "tool-call"]; // the last is the AI SDK's
const ROLES = [...SYSTEM_ROLES, "user", "assistant", "tool"];

/** A message of a model, as steps have it. */
interface Message {
  role: string;
  content: unknown;
  tool_calls?: unknown[];
}

/** Return the messages that went into a model call or an agent, with its instructions before them. */
function inputMessages({ attributes, events }: Span): Message[] {
  const prompt = parsed(firstOf(attributes, "ai.prompt", "llm.invocation_parameters"));
  const asked = isObject(prompt) ? prompt : {};
  const instructions = parsed(attributes["gen_ai.system_instructions"]);
  const system = Array.isArray(instructions) ? { role: "system", parts: instructions } : instructions;
  const systems = [system, asked.system].flat().filter(Boolean);
  const found = firstFilled(
    parsed(attributes["gen_ai.input.messages"]),
    parsed(attributes["ai.prompt.messages"]),
    asked.messages ?? asked.prompt,
    asked.prompt === undefined ? [] : [asked.prompt],
    listed(attributes, "gen_ai.prompt."),
    listed(attributes, "llm.input_messages."),
    events.flatMap(({ name, attributes: given }) => {
      const role = ROLES.find((each) => name === `gen_ai.${each}.message`);
      return role === undefined ? [] : [{ role, ...given }];
    }),
  );
  return [...systems.map((each) => messageOf(each, "system")), ...found.map((each) => messageOf(each, "user"))];
}

/** Return the messages that came out of a model call or an agent. */
function outputMessages({ attributes, events }: Span, isAgent: boolean): Message[] {
  const text = attributes["ai.response.text"];
  const calls = attributes["ai.response.toolCalls"];
  const found = firstFilled(
    parsed(attributes["gen_ai.output.messages"]),
    text === undefined && calls === undefined ? [] : [{ content: text ?? null, tool_calls: calls }],
    listed(attributes, "gen_ai.completion."),
    listed(attributes, "llm.output_messages."),
    events.filter(({ name }) => name === "gen_ai.choice").map((event) => event.attributes),
  );
  return (isAgent ? found.map(answerOf) : found).map((each) => messageOf(each, "assistant"));
}

function firstFilled(...lists: unknown[]): unknown[] {
  return lists.map(arrayOf).find((list) => list.length > 0) ?? [];
}

/** An agent's message without the calls of tools, which are steps within the agent's, if it has an answer. */
function answerOf(message: unknown): unknown {
  if (!isObject(message) || !Array.isArray(message.parts)) return message;
  const texts = message.parts.filter((part) => isObject(part) && part.type === "text");
  return texts.length > 0 ? { ...message, parts: texts } : message;
}

/** Return `{role, content}`, with `tool_calls` if there are any, of a message of any convention. */
function messageOf(given: unknown, role: string): Message {
  const message = isObject(given) ? parsed(given.message ?? given) : given; // OpenInference's, and that of a `gen_ai.choice`
  if (!isObject(message)) return { role, content: message ?? null };
  let content = parsed(message.parts ?? message.contents ?? message.content ?? message.text);
  const calls = arrayOf(parsed(message.tool_calls)).map(toolCall);
  if (Array.isArray(content)) {
    calls.push(...content.filter(isCall).map(toolCall));
    content = contentOf(content.filter((part) => !isCall(part)));
  }
  const read: Message = { role: String(message.role || role), content: content ?? null };
  return calls.length > 0 ? { ...read, tool_calls: calls } : read;
}

/** Return the text of parts; if they hold other than text, such as images, the list of them. */
function contentOf(parts: readonly unknown[]): unknown {
  if (parts.length === 0) return null;
  const contents = parts.map((part) => {
    const inner = isObject(part) ? (part.message_content ?? part) : part;
    if (!isObject(inner)) return inner;
    if (TEXT_TYPES.includes(String(inner.type))) return inner.content ?? inner.text ?? null;
    if (inner.type === "tool_call_response") return inner.response ?? inner.result ?? null;
    if (inner.type === "tool-result") return (isObject(inner.output) ? inner.output.value : inner.output) ?? null;
    return inner;
  });
  return contents.every((each) => typeof each === "string") ? contents.join("\n") : contents;
}

function isCall(part: unknown): boolean {
  return isObject(part) && CALL_TYPES.includes(String(part.type));
}

/** Return `{name, arguments}` of a tool call of any convention. */
function toolCall(given: unknown): unknown {
  const call = isObject(given) ? (given.tool_call ?? given) : given;
  if (!isObject(call)) return call ?? null;
  const called = isObject(call.function) ? call.function : call;
  const asked = parsed(firstOf(called, "arguments", "input", "args"));
  return { name: called.name ?? called.toolName ?? null, arguments: asked ?? null };
}

/** Return the list whose parts stand in attributes such as `PREFIX0.role`; numbers in names are places in lists. */
function listed(attributes: Attributes, prefix: string): unknown[] {
  const tree: Attributes = Object.create(null); // a name may be `__proto__`
  for (const [name, value] of Object.entries(attributes)) {
    if (!name.startsWith(prefix)) continue;
    const path = name.slice(prefix.length).split(".");
    const last = path.pop() as string;
    let node = tree;
    for (const part of path) {
      node[part] ??= Object.create(null);
      const inner = node[part];
      node = isObject(inner) ? inner : node;
    }
    node[last] = value;
  }
  return arrayOf(withLists(tree));
}

function withLists(tree: unknown): unknown {
  if (!isObject(tree)) return tree;
  const names = Object.keys(tree);
  if (names.length > 0 && names.every((name) => /^\d+$/.test(name))) {
    return names.sort((left, right) => Number(left) - Number(right)).map((name) => withLists(tree[name]));
  }
  return Object.fromEntries(names.map((name) => [name, withLists(tree[name])]));
}

function isSystem({ role }: Message): boolean {
  return SYSTEM_ROLES.includes(role);
}

function arrayOf(found: unknown): unknown[] {
  return Array.isArray(found) ? found : [];
}

type Attributes = Record<string, unknown>;
/** Seconds and nanoseconds. */
type HighResolutionTime = readonly [number, number];

/** The part that is read of a span of any OpenTelemetry SDK. */
export interface Span {
  readonly name: string;
  readonly attributes: Attributes;
  readonly events: readonly { name: string; attributes?: Attributes | undefined }[];
  readonly status: { code: number; message?: string | undefined };
  readonly ended: boolean;
  readonly duration: HighResolutionTime;
  spanContext(): { spanId: string };
}

/** The first of some attributes that has a value. */
function firstOf(attributes: Attributes, ...names: string[]): unknown {
  return names.map((name) => attributes[name]).find((value) => value !== undefined && value !== null);
}

/** Return the object or array that a text holds as JSON; any other text, also of a number, is a text. */
export function parsed(value: unknown): unknown {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  return jsonIn(value) ?? value;
}

/** Return the text that is JSON in a text, as results of tools may be; any other value as it is. */
function textOfJson(value: unknown): unknown {
  return typeof value === "string" && /^".*"$/s.test(value) ? (jsonIn(value) ?? value) : value;
}
