/** The options of `optimize`: their types, their checks, the program that they make, and the settings of the optimizer among them. */

import { A_FUNCTION, ANYTHING, checkKinds, type Kind, SetupError, TRUE_OR_FALSE } from "../base/configuration.js";
import type { EndpointOptions } from "../base/options.js";
import { type OptimizeSettings, type RunEvent, SETTINGS } from "../generated/optimize.js";
import {
  type BatchProgram,
  type Candidate,
  checkProgram,
  type FunctionProgram,
  type NewTexts,
  PROGRAM_PARTS,
  type Program,
  type ReflectiveDataset,
} from "../program/program.js";
import type { RowSource } from "../rows/row-sources.js";
import { sha256 } from "../server/node-process.js";

/** What `optimize` takes: its own options, and every setting of `evolverpc optimize`. */
export interface OptimizeOptions<Data, Output, Component extends string = string>
  extends OptimizeSettings,
    Pick<EndpointOptions, "trustResults" | "modelHosts"> {
  program: FunctionProgram<Data, Output, Component> | BatchProgram<Data, Output, Component>;
  /** Rows to learn from: an array, another iterable, or a .jsonl, .json or .csv file. Default: split `train` of the program. */
  trainset?: RowSource<Data> | undefined;
  /** Rows to select candidates by. Default: split `val`, else by `valFraction`. */
  valset?: RowSource<NoInfer<Data>> | undefined;
  /** Rows to score the seed and the best candidate on, at the end only. Default: split `test`, if any. */
  testset?: RowSource<NoInfer<Data>> | undefined;
  /** Returns new texts for `components`, in place of a reflection model. */
  propose?(
    candidate: Candidate<Component>,
    dataset: ReflectiveDataset,
    components: Component[],
  ): NewTexts<Component> | Promise<NewTexts<Component>>;
  /**
   * Run the program in child processes, which are replaced if an example hangs or ends them. They start this process's
   * own command again, up to this call. Default: false.
   */
  isolated?: boolean | undefined;
  /** The id of a run to continue, or `last`, with the same program and rows. A completed one needs a larger limit. */
  resume?: string | undefined;
  /** Pauses the run when it is aborted; the promise is then rejected with `OptimizeError`. */
  signal?: AbortSignal | undefined;
  /** Receives each event of the run; the optimizer then displays nothing. The next one waits for a returned promise. */
  onEvent?(event: RunEvent): unknown;
  /** The Python package's command to use. Default: `GEPA_CLIENT`, else that on PATH, else one that is set up once. */
  optimizer?: string | undefined;
}

export type AnyOptions = OptimizeOptions<unknown, unknown>;

/** The options that hold rows, with the splits that the optimizer reads them from. */
const SPLITS = { trainset: "train", valset: "val", testset: "test" } as const;

/** The options that are no settings of the optimizer. */
const OWN_OPTIONS: Record<Exclude<keyof AnyOptions, keyof OptimizeSettings | keyof typeof SPLITS>, Kind> = {
  program: ANYTHING,
  propose: A_FUNCTION,
  isolated: TRUE_OR_FALSE,
  trustResults: TRUE_OR_FALSE,
  modelHosts: ANYTHING,
  resume: [(value) => typeof value === "string" && value !== "", 'the id of a run, or "last"'],
  signal: [(value) => value instanceof AbortSignal, "an AbortSignal, such as `controller.signal`"],
  onEvent: A_FUNCTION,
  optimizer: ANYTHING,
};
const KNOWN = [...Object.keys({ ...OWN_OPTIONS, ...SPLITS }), ...SETTINGS];
const PARTS = Object.keys(PROGRAM_PARTS);

/** Throws `SetupError` for options that cannot be used together, or at all. `calls`: how often `optimize` was called. */
export function checkOptions(options: AnyOptions, calls: number): void {
  rejectUnknown(options, KNOWN, "there is no option");
  const { isolated, output, program, propose, reflectionLm, resume } = options;
  checkProgram(program);
  // A class may have fields of any name.
  if (Object.getPrototypeOf(program) === Object.prototype) rejectUnknown(program, PARTS, "a program has no");
  checkKinds(options, OWN_OPTIONS);
  if (propose !== undefined && (reflectionLm !== undefined || program.proposeNewTexts !== undefined)) {
    const other = reflectionLm === undefined ? "the program's `proposeNewTexts`" : "`reflectionLm`";
    throw new SetupError(`\`propose\` and ${other} both propose new texts: leave one of them out`);
  }
  if (resume !== undefined && output !== undefined) {
    throw new SetupError("a run that is resumed keeps its folder: leave `output` out");
  }
  if (isolated && calls > 1) {
    throw new SetupError(
      "`isolated` needs the first `optimize` of the process: its workers start again and stop there",
    );
  }
}

function rejectUnknown(given: object, known: readonly string[], fault: string): void {
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new SetupError(`${fault} \`${unknown}\``);
}

/** The program with the rows as splits of its own, which the optimizer reads page by page, and with `propose`. */
export function programOf({ program, propose, ...options }: AnyOptions): Program {
  const source = program as unknown as Record<string, unknown>;
  const parts = PARTS.filter((name) => source[name] !== undefined).map((name) => {
    const part = source[name];
    return [name, typeof part === "function" ? part.bind(program) : part];
  });
  const datasets: Record<string, RowSource> = { ...program.datasets };
  for (const [option, split] of Object.entries(SPLITS) as [keyof typeof SPLITS, string][]) {
    const rows = options[option];
    if (rows === undefined) continue;
    if (rows === null || (Array.isArray(rows) && rows.length === 0)) {
      throw new SetupError(`\`${option}\` holds no rows: leave it out, or give some`);
    }
    datasets[split] = rows;
  }
  return { ...Object.fromEntries(parts), datasets, ...(propose && { proposeNewTexts: propose }) };
}

/** A text that changes if a function of the program does: its file may differ, by the option `resume` alone. */
export function digestOf({ program, propose }: AnyOptions): string {
  const source = program as unknown as Record<string, unknown>;
  const functions = [...PARTS.map((name) => source[name]), propose].filter((part) => typeof part === "function");
  return sha256(functions.map(String).join("\n"));
}

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
