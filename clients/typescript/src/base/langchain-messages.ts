/** Messages of LangChain as chat messages. */

import { isObject } from "./values.js";

const ROLES = new Map([
  ["HumanMessage", "user"],
  ["AIMessage", "assistant"],
  ["SystemMessage", "system"],
  ["ToolMessage", "tool"],
]);

/**
 * Return what `toJSON` of a LangChain message returned as `{role, content}`, with `tool_calls` of `{name, arguments}` if
 * there are any, and everything else as it is.
 */
export function asChatMessage(json: unknown): unknown {
  if (!isObject(json) || json.lc !== 1 || !Array.isArray(json.id) || !isObject(json.kwargs)) return json;
  const [parent, name] = json.id.slice(-2).map((part) => String(part).replace(/Chunk$/, ""));
  const role = parent === "messages" ? ROLES.get(name ?? "") : undefined;
  if (role === undefined) return json;
  const { content, tool_calls: calls } = json.kwargs;
  const message = { role, content: content ?? null };
  if (!Array.isArray(calls) || calls.length === 0) return message;
  return { ...message, tool_calls: calls.map((call) => ({ name: call?.name, arguments: call?.args })) };
}
