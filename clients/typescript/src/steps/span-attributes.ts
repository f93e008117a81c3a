/** The part of a span that is read, and the values of its attributes. */

import { jsonIn } from "../base/values.js";

export type Attributes = Record<string, unknown>;
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
export function firstOf(attributes: Attributes, ...names: string[]): unknown {
  return names.map((name) => attributes[name]).find((value) => value !== undefined && value !== null);
}

/** Return the object or array that a text holds as JSON; any other text, also of a number, is a text. */
export function parsed(value: unknown): unknown {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value;
  return jsonIn(value) ?? value;
}

/** Return the text that is JSON in a text, as results of tools may be; any other value as it is. */
export function textOfJson(value: unknown): unknown {
  return typeof value === "string" && /^".*"$/s.test(value) ? (jsonIn(value) ?? value) : value;
}
