/** The options of `optimize`: their types, their checks, and the program that they make. */

import { namesOf, SetupError, wholeNumber } from "../base/configuration.js";
import { sha256 } from "../base/digest.js";
import { nearest } from "../base/edit-distance.js";
import { shown } from "../base/values.js";
import { type OptimizeSettings, type RunEvent, SETTINGS } from "../generated/optimize.js";
import { checkProgram } from "../program/check-program.js";
import type {
  BatchProgram,
  Candidate,
  FunctionProgram,
  NewTexts,
  Program,
  ReflectiveDataset,
} from "../program/program.js";
import type { RowSource } from "../rows/row-sources.js";
import { SPLITS } from "./optimizer-settings.js";

/** What `optimize` takes: its own options, and every setting of `evolverpc optimize`. */
export interface OptimizeOptions<Data, Output, Component extends string = string> extends OptimizeSettings {
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
  /** Whether a returned result counts although the last call of a model failed. Default: false. */
  trustResults?: boolean | undefined;
  /** Hosts, as `host` or `host:port`, at which every call is one of a model. */
  modelHosts?: readonly string[] | undefined;
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

/** The options that are no settings of the optimizer. */
const OWN_OPTIONS = namesOf<Omit<OptimizeOptions<unknown, unknown>, keyof OptimizeSettings | keyof typeof SPLITS>>({
  program: 1,
  propose: 1,
  isolated: 1,
  trustResults: 1,
  modelHosts: 1,
  resume: 1,
  signal: 1,
  onEvent: 1,
  optimizer: 1,
});
const KNOWN = [...OWN_OPTIONS, ...Object.keys(SPLITS), ...SETTINGS];
/** The parts of a program, which a class may hold in its prototype. */
const PROGRAM_PARTS = namesOf<Required<FunctionProgram & BatchProgram>>({
  name: 1,
  version: 1,
  deterministic: 1,
  rowSchema: 1,
  datasets: 1,
  seedCandidate: 1,
  componentDescriptions: 1,
  run: 1,
  evaluate: 1,
  wholeBatches: 1,
  score: 1,
  readsTrajectory: 1,
  makeReflectiveDataset: 1,
  proposeNewTexts: 1,
  finalize: 1,
});

/** What the values of options must be. */
const KINDS = {
  propose: [isFunction, "a function"],
  onEvent: [isFunction, "a function"],
  isolated: [(value: unknown) => typeof value === "boolean", "true or false"],
  signal: [(value: unknown) => value instanceof AbortSignal, "an AbortSignal, such as `controller.signal`"],
  resume: [(value: unknown) => typeof value === "string" && value !== "", 'the id of a run, or "last"'],
} as const;

function isFunction(value: unknown): boolean {
  return typeof value === "function";
}

/** Throws `SetupError` for options that cannot be used together, or at all. `calls`: how often `optimize` was called. */
export function checkOptions(options: AnyOptions, calls: number): void {
  rejectUnknown(options, KNOWN, "there is no option");
  const { isolated, output, program, propose, reflectionLm, resume } = options;
  checkProgram(program);
  // A class may have fields of any name.
  if (Object.getPrototypeOf(program) === Object.prototype) rejectUnknown(program, PROGRAM_PARTS, "a program has no");
  for (const [name, [isUsable, kind]] of Object.entries(KINDS)) {
    const value = options[name as keyof typeof KINDS];
    if (value === undefined || isUsable(value)) continue;
    throw new SetupError(`\`${name}\` must be ${kind}, not ${shown(value)}`);
  }
  for (const name of ["maxMetricCalls", "concurrency"] as const) {
    wholeNumber(1, 1)(options[name], name);
  }
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
  if (unknown === undefined) return;
  const meant = nearest(unknown, known);
  throw new SetupError(`${fault} \`${unknown}\`${meant === undefined ? "" : `; did you mean \`${meant}\`?`}`);
}

/** The program with the rows as splits of its own, which the optimizer reads page by page, and with `propose`. */
export function programOf({ program, propose, ...options }: AnyOptions): Program {
  const source = program as unknown as Record<string, unknown>;
  const parts = PROGRAM_PARTS.filter((name) => source[name] !== undefined).map((name) => {
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
  const functions = [...PROGRAM_PARTS.map((name) => source[name]), propose].filter(
    (part) => typeof part === "function",
  );
  return sha256(functions.map(String).join("\n"));
}
