/** JSON in both directions: a strict reader, a strict conversion of a program's values, and markers for values that readers change. */

import { ParseError } from "../generated/errors.js";
import { isObject } from "./values.js";

export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };

/** Levels of arrays and objects a message may nest. */
export const MAX_DEPTH = 512;

/** Levels left to a program's own values: clients take results of 200 levels, and the result itself is one. */
const MAX_VALUE_DEPTH = 199;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Parse a message; integers that `JSON.parse` would round become markers.
 *
 * Throws `ParseError` unless the bytes are one JSON value in UTF-8 that nests no deeper than `MAX_DEPTH`.
 */
export function parseJson(bytes: Uint8Array): unknown {
  if (nestsTooDeep(bytes)) throw new ParseError(undefined, { reason: `nested beyond ${MAX_DEPTH} levels` });
  let value: unknown;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(withLargeIntegers(text, (digits) => `{"${MARK}":["integer","${digits}"]}`));
  } catch (error) {
    // The engine's own message quotes the body, which may hold what no log should.
    if (error instanceof SyntaxError) throw new ParseError(undefined, { reason: "not JSON" });
    if (error instanceof TypeError) throw new ParseError(undefined, { reason: "not UTF-8" });
    throw error;
  }
  const reason = faultIn(value);
  if (reason !== undefined) throw new ParseError(undefined, { reason });
  return value;
}

/** Why what the engine has parsed is no message. */
function faultIn(value: unknown): string | undefined {
  if (typeof value === "string") return value.isWellFormed() ? undefined : "half of a surrogate pair in a text";
  // `1e400` is JSON by its grammar, but the engine makes it Infinity, which is none.
  if (typeof value === "number") return Number.isFinite(value) ? undefined : "a number beyond what a double holds";
  if (typeof value !== "object" || value === null) return undefined;
  for (const part of Array.isArray(value) ? value : Object.entries(value).flat()) {
    const fault = faultIn(part);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** Counted on the bytes, before anything is built: brackets inside strings do not count. */
function nestsTooDeep(bytes: Uint8Array): boolean {
  let depth = 0;
  let inString = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (inString) {
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) inString = true;
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      depth++;
      if (depth > MAX_DEPTH) return true;
    } else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth--;
  }
  return false;
}

/** Why a value a program gave cannot travel. */
export class NotJson extends Error {
  constructor(where: readonly (string | number)[], problem: string) {
    super(where.length === 0 ? problem : `${problem} (at ${pathText(where)})`);
    this.name = "NotJson";
  }
}

/** `["batch", 0, "data"]` as people write it: `batch[0].data`. */
export function pathText(where: readonly (string | number)[]): string {
  return where.map((key, at) => (typeof key === "number" ? `[${key}]` : at === 0 ? key : `.${key}`)).join("");
}

/**
 * A copy of a program's value as JSON for people and models, so that later changes by the program have no effect here.
 *
 * `undefined` becomes null, or is omitted from an object; `toJSON` is called; BigInts and integers beyond 2^53 - 1 become
 * their digits, half surrogate pairs their escapes. Throws `NotJson`, which calls the value `name`, for what JSON would
 * lose: NaN, functions, maps, cycles.
 */
export function toJsonValue(value: unknown, name?: string): JsonValue {
  return copied(value, name === undefined ? [] : [name], READABLE);
}

/** The same copy for a program that gets the value back: markers stand for what readers of JSON change. */
export function toExactJson(value: unknown, name?: string): JsonValue {
  return copied(value, name === undefined ? [] : [name], EXACT);
}

/** How a copy holds what readers of JSON change. */
interface Form {
  text: (text: string) => JsonValue;
  integer: (value: bigint | number) => JsonValue;
  object: (fields: [string, JsonValue][]) => JsonValue;
}

const READABLE: Form = {
  text: wellFormed,
  integer: (value) => String(BigInt(value)),
  object: (fields) => Object.fromEntries(fields.map(([name, item]) => [wellFormed(name), item])),
};

const EXACT: Form = {
  text: (text) => (text.isWellFormed() ? text : { [MARK]: ["text", JSON.stringify(text).slice(1, -1)] }),
  integer: (value) => ({ [MARK]: [typeof value === "bigint" ? "integer" : "number", String(value)] }),
  object: (fields) => {
    const plain = Object.fromEntries(fields);
    if (!isMarked(plain) && fields.every(([name]) => name.isWellFormed())) return plain;
    return { [MARK]: ["object", fields.map(([name, item]) => [EXACT.text(name), item])] };
  },
};

function copied(value: unknown, where: (string | number)[], form: Form): JsonValue {
  switch (typeof value) {
    case "string":
      return form.text(value);
    case "boolean":
      return value;
    case "number":
      if (!Number.isFinite(value)) throw new NotJson(where, `${value} has no JSON form`);
      return Number.isInteger(value) && !Number.isSafeInteger(value) ? form.integer(value) : value;
    case "bigint":
      return form.integer(value);
    case "undefined":
      return null;
    case "object":
      return value === null ? null : copiedObject(value, where, form);
    default:
      throw new NotJson(where, `a ${typeof value} has no JSON form`);
  }
}

function copiedObject(value: object, where: (string | number)[], form: Form): JsonValue {
  if (where.length >= MAX_VALUE_DEPTH) throw new NotJson(where.slice(0, 4), "cyclic, or nested too deep");
  const at = (key: string | number, item: unknown): JsonValue => {
    where.push(key);
    const copy = copied(item, where, form);
    where.pop();
    return copy;
  };
  if ("toJSON" in value && typeof value.toJSON === "function") return at("toJSON()", value.toJSON(pathText(where)));
  if (Array.isArray(value)) return value.map((item, index) => at(index, item));
  if (value instanceof Map || value instanceof Set || value instanceof Promise || ArrayBuffer.isView(value)) {
    throw new NotJson(where, `a ${value.constructor.name} has no JSON form`);
  }
  const fields = Object.entries(value).filter(([, item]) => item !== undefined);
  return form.object(fields.map(([key, item]) => [key, at(key, item)]));
}

const HALF_PAIR = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Write half surrogate pairs, for which a strict reader would refuse the whole message, as their escapes. */
export function wellFormed(text: string): string {
  return text.isWellFormed() ? text : text.replace(HALF_PAIR, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
}

const MARK = "$exact";

const SIXTEEN_DIGITS = /\d{16}/;
/** A text, or a number. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;
const INTEGER = /^-?[1-9]\d*$/;

/** Return JSON with what is `written` in place of each integer that `JSON.parse` would round. */
function withLargeIntegers(text: string, written: (digits: string) => string): string {
  if (!SIXTEEN_DIGITS.test(text)) return text;
  return text.replace(TOKEN, (token) =>
    INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? written(token) : token,
  );
}

/** Parse JSON of a user, with a BigInt for each integer that `JSON.parse` would round. */
export function parseExactly(text: string): unknown {
  const key = crypto.randomUUID(); // no key of the text itself
  const marked = withLargeIntegers(text, (digits) => `{"${key}":"${digits}"}`);
  if (marked === text) return JSON.parse(text);
  return JSON.parse(marked, (_, value) => (isObject(value) && key in value ? BigInt(value[key] as string) : value));
}

/** Return a copy of JSON with what its markers stand for. Throws `SyntaxError` for a marker that is none of the contract's. */
export function unpacked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(unpacked);
  if (!isObject(value)) return value;
  if (!isMarked(value)) return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, unpacked(item)]));
  try {
    return ofMarker(value[MARK] as [unknown, unknown]);
  } catch (error) {
    const text = JSON.stringify(value).slice(0, 200);
    throw new SyntaxError(`${text} is no marker of the contract: ${(error as Error).message}`);
  }
}

function ofMarker([kind, content]: [unknown, unknown]): unknown {
  if (kind === "tuple") return (content as unknown[]).map(unpacked);
  if (kind === "object") {
    return Object.fromEntries((content as unknown[][]).map(([name, item]) => [String(unpacked(name)), unpacked(item)]));
  }
  if (typeof content !== "string") throw new TypeError(`its kind is ${kind}, its content no text`);
  if (kind === "integer") return BigInt(content);
  if (kind === "text") return JSON.parse(`"${content}"`);
  const number = Number(content);
  if (kind !== "number" || !Number.isFinite(number)) throw new TypeError(`${kind} is no kind of value`);
  return number;
}

/** Whether an object is a marker, or looks like one. */
function isMarked(value: object): value is Record<typeof MARK, unknown> {
  const [name, ...others] = Object.keys(value);
  return name === MARK && others.length === 0;
}
