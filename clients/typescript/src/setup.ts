/** What keeps a server from starting, for whoever starts it to mend. */

import { shown } from "./values.js";

/** A mistake in a program or in its options; the message says which, and what is meant. */
export class SetupError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "SetupError";
  }
}

/** The names of all options of a kind; one that is left out does not compile. */
export function namesOf<Options>(names: Record<keyof Options, 1>): string[] {
  return Object.keys(names);
}

/** Throws for an option that does not exist: a misspelt one would have no effect. */
export function onlyKnown(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw new SetupError(`there is no option \`${unknown}\`; there are: ${known.join(", ")}`);
}

/** Throws for an option that stands in the program's object literal, where it would have no effect. */
export function noneInProgram(program: object, options: readonly string[]): void {
  if (Object.getPrototypeOf(program) !== Object.prototype) return; // a class may have fields of any name
  const misplaced = Object.keys(program).filter((name) => options.includes(name));
  if (misplaced.length === 0) return;
  throw new SetupError(
    `\`${misplaced[0]}\` is an option, not a part of the program: pass it in the second argument, { ${misplaced.join(", ")} }`,
  );
}

/** The value of an option, which must be a whole number of at least `least`. */
export function wholeNumber(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new SetupError(`\`${name}\` must be a whole number ${range}, not ${shown(value)}`);
}

/** The value of an option in seconds. */
export function seconds(name: string, value: number): number {
  if (typeof value === "number" && value >= 0) return value;
  throw new SetupError(`\`${name}\` must be a number of seconds, not ${shown(value)}`);
}
