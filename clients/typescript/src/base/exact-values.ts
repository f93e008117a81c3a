/**
 * Values that readers of JSON change: read with all digits, and carried by the contract's marker `{"$exact": [kind, content]}`.
 *
 * The kinds: `integer`, which is a BigInt, and `number`, as texts; `text` with half of a surrogate pair, as the content of
 * its JSON; `tuple`, as an array; `object` with keys that are no texts, or that looks like a marker, as an array of pairs.
 */

import { isObject } from "./values.js";

export const MARK = "$exact";

const SIXTEEN_DIGITS = /\d{16}/;
/** A text, or a number. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;
const INTEGER = /^-?[1-9]\d*$/;

/** Return JSON with a marker in place of each integer that `JSON.parse` would round. */
export function withLargeIntegersMarked(text: string): string {
  return withLargeIntegers(text, (digits) => `{"${MARK}":["integer","${digits}"]}`);
}

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
export function isMarked(value: object): value is Record<typeof MARK, unknown> {
  const [name, ...others] = Object.keys(value);
  return name === MARK && others.length === 0;
}
