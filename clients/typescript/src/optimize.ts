/** Optimize a program in one call: serve it, run the optimizer beside it, and return what it found. */

import { createHash } from "node:crypto";
import { checkProgram } from "./check-program.js";
import { namesOf, SetupError } from "./configuration.js";
import { nearest } from "./edit-distance.js";
import { type Finished, type OptimizeSettings, type RunEvent, SETTINGS } from "./generated/optimize.js";
import { type ProgramServer, serveIsolated } from "./isolated-server.js";
import { type OptimizeResult, readResult } from "./optimize-result.js";
import { asVariable, type Ended, respelled, runOptimizer } from "./optimizer-process.js";
import { optimizerCommand } from "./optimizer-setup.js";
import type { BatchProgram, Candidate, FunctionProgram, Program, ReflectiveDataset } from "./program.js";
import type { RowSource } from "./row-sources.js";
import { serve } from "./serve.js";
import { asSetupError } from "./start-error.js";
import { serveStdio } from "./stdio.js";
import { StopRequests } from "./stop-requests.js";
import { shown } from "./values.js";

/** What `optimize` takes: its own options, and every setting of `gepa-client optimize`. */
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
  ): Record<string, string> | Promise<Record<string, string>>;
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
  /** The command `gepa-client` to use. Default: `GEPA_CLIENT`, else that on PATH, else one that is set up once. */
  optimizer?: string | undefined;
}

const SPLITS = { trainset: "train", valset: "val", testset: "test" } as const;
const OWN = namesOf<Omit<OptimizeOptions<unknown, unknown>, keyof OptimizeSettings | keyof typeof SPLITS>>({
  program: 1,
  propose: 1,
  isolated: 1,
  resume: 1,
  signal: 1,
  onEvent: 1,
  optimizer: 1,
});
const KNOWN = [...OWN, ...Object.keys(SPLITS), ...SETTINGS];
const PARTS = namesOf<Required<FunctionProgram & BatchProgram>>({
  name: 1,
  version: 1,
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

/** A run that did not complete; what it found until then is in `result`. */
export class OptimizeError extends Error {
  constructor(
    message: string,
    readonly status: Finished["status"],
    /** Missing if the run was not begun. */
    readonly runId?: string,
    /** Missing if the seed was not scored. */
    readonly result?: OptimizeResult,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "OptimizeError";
    Object.defineProperty(this, "result", { enumerable: false }); // too long to be printed with an uncaught error
  }
}

type AnyOptions = OptimizeOptions<unknown, unknown>;

let calls = 0;

/**
 * Optimize the texts of a program, and return the best ones with their scores.
 *
 * Ctrl-C and SIGTERM pause the run, and then end the process; `resume` continues it.
 *
 * Rejects with `SetupError` if an option or the program cannot be used, or there is no optimizer; with `OptimizeError` if
 * the run is refused, paused or fails.
 */
export async function optimize<Data, Output, Component extends string>(
  options: OptimizeOptions<Data, Output, Component>,
): Promise<OptimizeResult<Component>> {
  try {
    calls++;
    return (await optimized(options as unknown as AnyOptions)) as OptimizeResult<Component>;
  } catch (error) {
    if (error instanceof OptimizeError) Error.captureStackTrace(error, optimize);
    throw asSetupError(error, optimize);
  }
}

async function optimized(options: AnyOptions): Promise<OptimizeResult> {
  checkOptions(Object(options));
  const program = programOf(options);
  const digest = digestOf(options);
  if (process.env.GEPA_STDIO !== undefined) return serveStdio(program, { digest }); // a worker of `serveIsolated`
  const settings = variablesOf(options);
  const stop = new StopRequests(options.signal);
  try {
    const command = await optimizerCommand(options.optimizer, stop.signal);
    const server = await served(program, digest, command, options);
    return resultOf(await runBeside(server, command, settings, options, stop), stop);
  } catch (error) {
    if (stop.received !== undefined) console.error(`evolverpc: ${(error as Error).message}`); // the process ends next
    throw error;
  } finally {
    stop.end();
  }
}

function served(
  program: Program,
  digest: string,
  optimizer: string,
  { exampleTimeoutS, isolated, maxInFlight }: AnyOptions,
): Promise<ProgramServer> {
  if (isolated) return serveIsolated(optimizer, exampleTimeoutS);
  return serve(program, {
    digest,
    ownsProcess: false,
    announce: () => {},
    ...(maxInFlight !== undefined && { maxConcurrency: maxInFlight }),
    ...(exampleTimeoutS !== undefined && { exampleTimeoutS }),
  });
}

async function runBeside(
  server: ProgramServer,
  optimizer: string,
  settings: Record<string, string>,
  { onEvent, resume }: AnyOptions,
  stop: StopRequests,
): Promise<Ended> {
  const words = resume === undefined ? ["optimize", server.url] : ["resume", resume, server.url];
  const env = { ...process.env, ...settings, GEPA_TOKEN: server.token, GEPA_TOKEN_FILE: undefined };
  try {
    stop.signal.throwIfAborted();
    return await runOptimizer(optimizer, words, { env, onEvent, stop });
  } finally {
    await server.close();
  }
}

function checkOptions(options: AnyOptions): void {
  for (const name of Object.keys(options)) {
    if (KNOWN.includes(name)) continue;
    const meant = nearest(name, KNOWN);
    throw new SetupError(`there is no option \`${name}\`${meant === undefined ? "" : `; did you mean \`${meant}\`?`}`);
  }
  const { isolated, output, program, propose, reflectionLm, resume } = options;
  checkProgram(program);
  if (propose !== undefined && typeof propose !== "function") {
    throw new SetupError(`\`propose\` must be a function, not ${shown(propose)}`);
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

/** The program with the rows as splits of its own, which the optimizer reads page by page, and with `propose`. */
function programOf({ program, propose, ...options }: AnyOptions): Program {
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
function digestOf({ program, propose }: AnyOptions): string {
  const source = program as unknown as Record<string, unknown>;
  const functions = [...PARTS.map((name) => source[name]), propose].filter((part) => typeof part === "function");
  return createHash("sha256").update(functions.map(String).join("\n")).digest("hex");
}

/** The settings as variables of the optimizer's environment, which other users cannot read. */
function variablesOf(options: AnyOptions): Record<string, string> {
  const given = Object.entries(options).filter(([name, value]) => !OWN.includes(name) && value !== undefined);
  const settings = given.map(([name, value]) => [name, SPLITS[name as keyof typeof SPLITS] ?? value] as const);
  const proposer = options.propose === undefined ? [] : [["reflectionLm", "program"] as const];
  return Object.fromEntries([...settings, ...proposer].map(([name, value]) => asVariable(name, value)));
}

function resultOf({ runId, summary, printed }: Ended, { signal }: StopRequests): OptimizeResult {
  const cause = signal.aborted ? { cause: signal.reason } : undefined;
  if (summary === undefined && runId !== undefined) {
    throw new OptimizeError(`the optimizer was killed. ${toContinue(runId)}`, "paused", runId, undefined, cause);
  }
  if (summary === undefined) {
    const message = respelled(printed.replace(/^error: /, "")) || "the optimizer ended before the run was begun";
    throw new OptimizeError(message, "refused", undefined, undefined, cause);
  }
  const { run_id: id, status, reason, output } = summary;
  const result = output === null ? undefined : readResult(id, output);
  if (status === "completed" && result !== undefined) return result;
  const why = reason === null ? "" : `: ${respelled(reason)}`;
  const again = status === "refused" ? "" : `. ${toContinue(id)}`;
  throw new OptimizeError(`run ${id} is ${status}${why}${again}`, status, id, result, cause);
}

function toContinue(runId: string): string {
  return `To continue it: optimize({ ..., resume: "${runId}" })`;
}
