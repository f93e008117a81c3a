/** The messages of models in the attributes and events of spans, by the conventions of GenAI, OpenInference and the AI SDK. */

import { isObject } from "../base/values.js";
import { SPANS } from "../generated/spans.js";
import { type Attributes, firstOf, parsed, type Span } from "./span-attributes.js";

const SYSTEM_ROLES: readonly string[] = SPANS.SYSTEM_ROLES;
const TEXT_TYPES: readonly string[] = SPANS.TEXT_TYPES;
const CALL_TYPES: readonly string[] = [...SPANS.CALL_TYPES, "tool-call"]; // the last is the AI SDK's
const ROLES = [...SYSTEM_ROLES, "user", "assistant", "tool"];

/** A message of a model, as steps have it. */
export interface Message {
  role: string;
  content: unknown;
  tool_calls?: unknown[];
}

/** Return the messages that went into a model call or an agent, with its instructions before them. */
export function inputMessages({ attributes, events }: Span): Message[] {
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
export function outputMessages({ attributes, events }: Span, isAgent: boolean): Message[] {
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

export function isSystem({ role }: Message): boolean {
  return SYSTEM_ROLES.includes(role);
}

function arrayOf(found: unknown): unknown[] {
  return Array.isArray(found) ? found : [];
}
