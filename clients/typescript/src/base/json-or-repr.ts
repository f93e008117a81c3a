/** The JSON of any value of a program: what JSON cannot hold is replaced by its type and a text. */

import { type JsonValue, wellFormed } from "./json.js";
import { asChatMessage } from "./langchain-messages.js";
import { inspected } from "./runtime.js";

/** Levels of arrays and objects that are kept; those of the steps around a value are left of the 200 of a result. */
const MAX_DEPTH = 64;
const MAX_SHOWN = 8 * 1024;

/**
 * A copy of a value as JSON, so that later changes by the program have no effect here.
 *
 * `{type, repr}` stands for each part that is not JSON: functions, maps, NaN, what contains itself, what is nested beyond
 * 64 levels, what throws when it is read. A message of LangChain is a chat message.
 */
export function jsonOrRepr(value: unknown): JsonValue {
  return copied(value, []);
}

function copied(value: unknown, around: object[]): JsonValue {
  if (typeof value === "string") return wellFormed(value);
  if (typeof value === "boolean" || value === null) return value;
  if (value === undefined) return null;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (typeof value !== "object") return replaced(value);
  if (around.includes(value) || around.length >= MAX_DEPTH) return replaced(value);
  around.push(value);
  try {
    return copiedObject(value, around);
  } catch {
    return replaced(value); // a getter is the program's code
  } finally {
    around.pop();
  }
}

function copiedObject(value: object, around: object[]): JsonValue {
  if (ArrayBuffer.isView(value) || value instanceof Error) return replaced(value);
  if ("toJSON" in value && typeof value.toJSON === "function") return copied(asChatMessage(value.toJSON()), around);
  if (Array.isArray(value)) return Array.from(value, (item) => copied(item, around));
  const fields = Object.entries(value).filter(([, item]) => item !== undefined);
  if (fields.length === 0 && !isPlain(value)) return replaced(value);
  return Object.fromEntries(fields.map(([key, item]) => [wellFormed(key), copied(item, around)]));
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

function replaced(value: unknown): JsonValue {
  try {
    const type = typeof value === "object" ? (value?.constructor?.name ?? "Object") : typeof value;
    return { type: wellFormed(String(type)), repr: wellFormed(inspected(value).slice(0, MAX_SHOWN)) };
  } catch {
    return { type: typeof value, repr: "a value that throws when it is read" };
  }
}
