/** A program's answer that breaks the contract. */

import { shown } from "./values.js";

/** A program's answer that breaks the contract: its example fails with this message. */
export class InvalidResult extends Error {}

/** Return a number; a boolean counts as 1 or 0, as in Python. Throws `InvalidResult`, which calls the value `what`. */
export function finite(value: unknown, what: string): number {
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new InvalidResult(`${what} must be a finite number, not ${shown(value)}`);
}
