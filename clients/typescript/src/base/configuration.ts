/** Configuration errors: mistakes in a program or its options that keep a server from starting. */

import { shown } from "./values.js";

/** A mistake in a program or in its options; the message names it and the fix. */
export class SetupError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "SetupError";
  }
}

/** The names of all options of an interface; a missing one does not compile. */
export function namesOf<Options>(names: Record<keyof Options, 1>): string[] {
  return Object.keys(names);
}

/** Throws for an unknown option: a misspelt one would have no effect. */
export function rejectUnknownOptions(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw new SetupError(`there is no option \`${unknown}\`; there are: ${known.join(", ")}`);
}

/** Throws for an option in the program's object literal, where it would have no effect. */
export function rejectMisplacedOptions(program: object, options: readonly string[]): void {
  if (Object.getPrototypeOf(program) !== Object.prototype) return; // a class may have fields of any name
  const misplaced = Object.keys(program).filter((name) => options.includes(name));
  if (misplaced.length === 0) return;
  throw new SetupError(
    `\`${misplaced[0]}\` is an option, not a part of the program: pass it in the second argument, { ${misplaced.join(", ")} }`,
  );
}

/** Check that the value of an option is a whole number of at least `least`. */
export function wholeNumber(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new SetupError(`\`${name}\` must be a whole number ${range}, not ${shown(value)}`);
}

/** Check that the value of an option is a number of seconds. */
export function seconds(name: string, value: number): number {
  if (typeof value === "number" && value >= 0) return value;
  throw new SetupError(`\`${name}\` must be a number of seconds, not ${shown(value)}`);
}
