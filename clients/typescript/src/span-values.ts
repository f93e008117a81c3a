/** What a span states of a step, by the conventions of GenAI, OpenInference and the AI SDK. */

import type { ExampleError, ModelUsage, Step, Usage } from "./generated/types.js";
import type { Candidate } from "./program.js";
import { isObject } from "./values.js";

type Attributes = Record<string, unknown>;
type Kind = "model" | "tool" | "agent" | "chain";

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
  /** What records it; `instrumentationLibrary` in version 1 of the SDK. */
  readonly instrumentationScope?: { name: string };
  readonly instrumentationLibrary?: { name: string };
  spanContext(): { spanId: string };
}

/** A message of a model, as steps have it. */
interface Message {
  role: string;
  content: unknown;
  tool_calls?: unknown[];
}

const OPERATIONS: Record<string, Kind> = {
  chat: "model",
  text_completion: "model",
  generate_content: "model",
  embeddings: "model",
  execute_tool: "tool",
  invoke_agent: "agent",
};
const OPENINFERENCE_KINDS: Record<string, Kind> = { LLM: "model", TOOL: "tool", AGENT: "agent", CHAIN: "chain" };
const SYSTEM_ROLES = ["system", "developer"];
const TEXT_TYPES = ["text", "input_text", "output_text"];
const CALL_TYPES = ["tool_call", "tool-call", "tool_use"];

/** Characters of a component's text by which a system message is recognised; a shorter one may stand there by chance. */
const SHORTEST = 8;

/** Characters of a model's name in the contract. */
const LONGEST_MODEL = 256;

const STATUS_OK = 1;
const STATUS_UNSET = 0;

/** The names of counts, in the order in which they are looked for. */
const TOKENS: readonly (readonly [keyof ModelUsage, ...string[]])[] = [
  ["input_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"],
  ["output_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"],
  [
    "cached_input_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "llm.token_count.prompt_details.cache_read",
    "ai.usage.cachedInputTokens",
  ],
  [
    "cache_write_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "llm.token_count.prompt_details.cache_write",
    "ai.usage.inputTokenDetails.cacheWriteTokens",
  ],
];

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
  const messages = inputMessages(attributes, span.events);
  const component = componentOf(span.name, attributes, kind, messages, candidate);
  if (kind === "chain" && component === undefined) return undefined; // frameworks have chains for their own parts
  const model = modelOf(attributes);
  const name = String(first(attributes, "gen_ai.tool.name", "tool.name", "ai.toolCall.name") ?? span.name);
  const inputs = inputsOf(attributes, kind, messages);
  if (kind === "model" && model) inputs.model = model;
  const error = errorOf(span);
  const values: Step = {
    ...(component === undefined ? { name } : { component }),
    inputs,
    outputs: outputsOf(attributes, span.events, kind),
    ...(error === undefined ? {} : { error }),
    ...(kind === "model" ? { usage: spanUsage(attributes) } : {}),
    ...(span.ended ? { seconds: span.duration[0] + span.duration[1] / 1e9 } : {}),
  };
  return { kind, values };
}

function modelOf(attributes: Attributes): unknown {
  return first(attributes, "gen_ai.request.model", "gen_ai.response.model", "llm.model_name");
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
  const agent = first(attributes, "gen_ai.agent.name", "ai.telemetry.functionId");
  if (typeof agent === "string" && Object.hasOwn(candidate, agent)) return agent;
  const system = messages
    .filter(isSystem)
    .map(({ content }) => String(content))
    .join("\n");
  let found: [component: string, length: number] | undefined;
  for (const [component, text] of Object.entries(candidate)) {
    const { length } = text.trim();
    if (length >= SHORTEST && length > (found?.[1] ?? 0) && system.includes(text.trim())) found = [component, length];
  }
  return found?.[0];
}

function inputsOf(attributes: Attributes, kind: Kind, messages: readonly Message[]): Record<string, unknown> {
  // An agent may state its instructions alone.
  if (messages.some((each) => !isSystem(each)) || (messages.length > 0 && kind === "model")) return { messages };
  const given = parsed(first(attributes, "gen_ai.tool.call.arguments", "ai.toolCall.args", "input.value"));
  if (given === undefined) return {};
  return isObject(given) ? { ...given } : { input: given };
}

function outputsOf(attributes: Attributes, events: Span["events"], kind: Kind): unknown {
  const given = kind === "tool" ? [] : outputMessages(attributes, events);
  const messages = (kind === "agent" ? given.map(answerOf) : given).map((each) => messageOf(each, "assistant"));
  const [only] = messages;
  if (only === undefined) {
    const result = first(attributes, "gen_ai.tool.call.result", "ai.toolCall.result");
    return parsed(textOfJson(result) ?? first(attributes, "ai.response.object", "output.value")) ?? null;
  }
  return messages.length === 1 && only.tool_calls === undefined ? only.content : messages;
}

/** What a model call cost, by its span. */
export function spanUsage(attributes: Attributes): Usage {
  const model = modelOf(attributes);
  const counts: ModelUsage = {};
  for (const [name, ...sources] of TOKENS) {
    const count = first(attributes, ...sources);
    if (typeof count === "number" && Number.isSafeInteger(count) && count >= 0) counts[name] = count;
  }
  const cost = first(attributes, "gen_ai.usage.cost", "llm.cost.total");
  const usage: Usage =
    typeof cost === "number" && Number.isFinite(cost) && cost >= 0 ? { calls: 1, cost_usd: cost } : { calls: 1 };
  const { cached_input_tokens: _cached, cache_write_tokens: _written, ...sums } = counts;
  if (typeof model !== "string" || model === "" || model.length > LONGEST_MODEL) return { ...usage, ...sums };
  if (Object.keys(counts).length === 0) return { ...usage, models: { [model]: { calls: 1 } } };
  const known = { input_tokens: 0, output_tokens: 0 };
  return { ...usage, ...known, ...sums, models: { [model]: { calls: 1, ...known, ...counts } } };
}

function errorOf({ attributes, events, status }: Span): ExampleError | undefined {
  const raised = events.filter(({ name }) => name === "exception");
  if (status.code === STATUS_OK || (status.code === STATUS_UNSET && raised.length === 0)) return undefined;
  const exception = raised.at(-1)?.attributes ?? {};
  const named = String(exception["exception.type"] || attributes["error.type"] || "error");
  const type = named.slice(named.lastIndexOf(".") + 1);
  return { type, message: String(exception["exception.message"] || status.message || type) };
}

function inputMessages(attributes: Attributes, events: Span["events"]): Message[] {
  const prompt = parsed(first(attributes, "ai.prompt", "llm.invocation_parameters"));
  const asked = isObject(prompt) ? prompt : {};
  const instructions = parsed(attributes["gen_ai.system_instructions"]);
  const system = Array.isArray(instructions) ? { role: "system", parts: instructions } : instructions;
  const systems = [system, ...[asked.system].flat()].filter(Boolean);
  let found =
    arrayOrNone(parsed(attributes["gen_ai.input.messages"])) ??
    arrayOrNone(parsed(attributes["ai.prompt.messages"])) ??
    arrayOrNone(asked.messages ?? asked.prompt) ??
    [asked.prompt].filter((each) => each !== undefined);
  if (found.length === 0) found = listed(attributes, "gen_ai.prompt.");
  if (found.length === 0) found = listed(attributes, "llm.input_messages.");
  if (found.length === 0) {
    const roles = [...SYSTEM_ROLES, "user", "assistant", "tool"];
    const roleOf = (event: string): string | undefined => roles.find((role) => event === `gen_ai.${role}.message`);
    found = events.flatMap(({ name, attributes: given }) => (roleOf(name) ? [{ role: roleOf(name), ...given }] : []));
  }
  return [...systems.map((each) => messageOf(each, "system")), ...found.map((each) => messageOf(each, "user"))];
}

function outputMessages(attributes: Attributes, events: Span["events"]): unknown[] {
  const text = attributes["ai.response.text"];
  const calls = attributes["ai.response.toolCalls"];
  const answered = text === undefined && calls === undefined ? [] : [{ content: text ?? null, tool_calls: calls }];
  let found = arrayOrNone(parsed(attributes["gen_ai.output.messages"])) ?? answered;
  if (found.length === 0) found = listed(attributes, "gen_ai.completion.");
  if (found.length === 0) found = listed(attributes, "llm.output_messages.");
  if (found.length === 0)
    found = events.filter(({ name }) => name === "gen_ai.choice").map((event) => event.attributes);
  return found;
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
  const calls = (arrayOrNone(parsed(message.tool_calls)) ?? []).map(toolCall);
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
  const asked = parsed(first(called, "arguments", "input", "args"));
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
  return arrayOrNone(withLists(tree)) ?? [];
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

function first(attributes: Attributes, ...names: string[]): unknown {
  return names.map((name) => attributes[name]).find((value) => value !== undefined && value !== null);
}

function own<Value>(table: Record<string, Value>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

function arrayOrNone(found: unknown): unknown[] | undefined {
  return Array.isArray(found) ? found : undefined;
}

/** Return the object or array that a text holds as JSON; any other text, also of a number, is a text. */
function parsed(value: unknown): unknown {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  return fromJson(value);
}

/** Return the text that is JSON in a text, as results of tools may be; any other value as it is. */
function textOfJson(value: unknown): unknown {
  return typeof value === "string" && /^".*"$/s.test(value) ? fromJson(value) : value;
}

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
