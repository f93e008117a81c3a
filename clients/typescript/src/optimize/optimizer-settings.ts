/** The settings of the optimizer, as variables of its environment, and their names in its messages. */

import { SetupError } from "../base/configuration.js";
import { type OptimizeSettings, SETTINGS } from "../generated/optimize.js";

/** The options that hold rows, with the splits that the optimizer reads them from. */
export const SPLITS = { trainset: "train", valset: "val", testset: "test" } as const;

const NAMES = [...SETTINGS, ...Object.keys(SPLITS)];
const SPELLINGS = new Map(NAMES.map((name) => [snakeCase(name), name]));

/**
 * Return the settings among options as variables of the environment, which other users cannot read.
 *
 * Throws `SetupError` for a value that would have no effect.
 */
export function variablesOf(options: OptimizeSettings & { propose?: unknown }): Record<string, string> {
  const given: Record<string, unknown> = { ...options };
  if (options.propose !== undefined) given.reflectionLm = "program";
  const variables = NAMES.filter((name) => given[name] !== undefined).map((name) => {
    const value = SPLITS[name as keyof typeof SPLITS] ?? given[name];
    return [`GEPA_${snakeCase(name).toUpperCase()}`, asText(name, value)];
  });
  return Object.fromEntries(variables);
}

function asText(name: string, value: unknown): string {
  if (value === null || value === "") {
    throw new SetupError(`\`${name}\` is ${value === "" ? "empty" : "null"}: leave it out`);
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Return a message of the optimizer with the names of settings as they are in TypeScript. */
export function respelled(message: string): string {
  return message.replace(/(?<=`)(?:GEPA_)?(\w+)(?=`)/g, (found, name) => SPELLINGS.get(name.toLowerCase()) ?? found);
}
