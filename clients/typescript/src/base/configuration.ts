/** Configuration errors: mistakes in a program or its options that keep a server from starting. */

import { shown } from "./values.js";

/** A mistake in a program or in its options; the message names it and the fix. */
export class SetupError extends Error {
  override name = "SetupError";
}

/** What a value must be, if it is given. */
export type Kind = readonly [isUsable: (value: unknown) => boolean, name: string];

export const ANYTHING: Kind = [() => true, ""];
export const A_FUNCTION: Kind = [(value) => typeof value === "function", "a function"];
export const TRUE_OR_FALSE: Kind = [(value) => typeof value === "boolean", "true or false"];

/** Throws for a value that is not of its kind. */
export function checkKinds(given: object, kinds: Record<string, Kind>): void {
  for (const [name, [isUsable, kind]] of Object.entries(kinds)) {
    const value = (given as Record<string, unknown>)[name];
    if (value === undefined || isUsable(value)) continue;
    throw new SetupError(`\`${name}\` must be ${kind}, not ${shown(value)}`);
  }
}

/** How options are read: their values, or the defaults. Throws `SetupError` for a value that cannot be used. */
type Readers = Record<string, (given: never, name: string) => unknown>;

/** The options of a table. */
export type OptionsOf<Table extends Readers> = { [Name in keyof Table]?: Parameters<Table[Name]>[0] };

/** What a table reads. */
export type ReadBy<Table extends Readers> = { [Name in keyof Table]: ReturnType<Table[Name]> };

/** Read the options of a table. */
export function readOptions<Table extends Readers>(options: object, table: Table): ReadBy<Table> {
  const given = options as Record<string, never>;
  return Object.fromEntries(
    Object.entries(table).map(([name, read]) => [name, read(given[name] as never, name)]),
  ) as ReadBy<Table>;
}

/** Read them; throws for a misspelt one too, and for one in the program's object literal: it would have no effect. */
export function readKnownOptions<Table extends Readers>(
  program: unknown,
  options: object,
  table: Table,
): ReadBy<Table> {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(table, name));
  if (unknown !== undefined) {
    throw new SetupError(`there is no option \`${unknown}\`; there are: ${Object.keys(table).join(", ")}`);
  }
  const isLiteral = Object.getPrototypeOf(Object(program)) === Object.prototype; // a class may have fields of any name
  const misplaced = Object.keys(Object(program)).filter((name) => isLiteral && Object.hasOwn(table, name));
  if (misplaced.length === 0) return readOptions(options, table);
  throw new SetupError(
    `\`${misplaced[0]}\` is an option, not a part of the program: pass it in the second argument, { ${misplaced.join(", ")} }`,
  );
}

/** An option of any value. */
export function anyOf<Value>(byDefault: Value) {
  return (given: Value | undefined): Value => given ?? byDefault;
}

/** An option that is a whole number of at least `least`. */
export function wholeNumber(least: number, byDefault: number, most = Number.MAX_SAFE_INTEGER) {
  return (given: number | undefined, name: string): number => {
    const value = given ?? byDefault;
    if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
    const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
    throw new SetupError(`\`${name}\` must be a whole number ${range}, not ${shown(value)}`);
  };
}

/** An option that is a number of seconds. */
export function seconds(byDefault: number) {
  return (given: number | undefined, name: string): number => {
    const value = given ?? byDefault;
    if (typeof value === "number" && value >= 0) return value;
    throw new SetupError(`\`${name}\` must be a number of seconds, not ${shown(value)}`);
  };
}
