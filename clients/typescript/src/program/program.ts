/** The interface of a program, and its check: a few functions; the candidate is always an argument, never shared state. */

import { A_FUNCTION, ANYTHING, checkKinds, type Kind, SetupError, TRUE_OR_FALSE } from "../base/configuration.js";
import { describeFailure, invokeProgram } from "../base/failure.js";
import { isObject, shown } from "../base/values.js";
import { ProgramFailed } from "../generated/errors.js";
import type { EvalBatch, ExampleResult, RunInfo, Usage } from "../generated/types.js";
import type { RowSource } from "../rows/row-sources.js";
import { checkSchema, type StandardSchema } from "../rows/standard-schema.js";

/** Component name -> component text. */
export type Candidate<Component extends string = string> = Record<Component, string>;

/** Component name -> its new text; a component without one keeps its text. */
export type NewTexts<Component extends string> = Partial<Record<NoInfer<Component>, string | undefined>>;

/** Component name -> records, each a JSON object such as `{"Inputs", "Generated Outputs", "Feedback"}`. */
export type ReflectiveDataset = Record<string, Record<string, unknown>[]>;

/** Component name -> feedback on it. A score of a component's own has no effect: that of the example counts. */
export type ComponentFeedback = Record<string, string | { feedback: string; score?: number }>;

/** What may go with a score: feedback, scores per objective and feedback on single components. */
type WithScore = Partial<Pick<ExampleResult, "feedback" | "objective_scores">> & {
  component_feedback?: ComponentFeedback | null;
};

/** A finite number; with feedback; or with all that may go with it. */
export type Score = number | readonly [score: number, feedback: string] | ({ score: number } & WithScore);

/** What a step is of: the name of a component, or `{ name }` of a step without one, such as a tool. */
export type StepLabel<Component extends string = string> =
  | Component
  | { component?: Component | null; name?: string | null };

/** A running step, as the function of the step gets it. */
export interface StepHandle {
  /** What the step cost. */
  usage: Usage;
  /** What came out of the step; default: the result of its function. */
  outputs: unknown;
}

/** What a step returns: the result of its function, as a `Promise` if that can be awaited. */
export type StepResult<Result> = Result extends PromiseLike<infer Value> ? Promise<Value> : Result;

/**
 * Run `fn` as a step of a component and return its result.
 *
 * `inputs`: what goes into the step, by name. The step's outputs are the result of `fn`, its error is what `fn` throws.
 * Steps that `fn` runs are steps within this one.
 */
export type RunStep<Component extends string = string> = <Result>(
  label: StepLabel<Component>,
  inputs: object,
  fn: (step: StepHandle) => Result,
) => StepResult<Result>;

/** What `run` gets besides the example and the candidate. */
export interface RunContext<Component extends string = string> {
  /** Aborted when the example reaches its deadline or the call is cancelled; pass it to `fetch`. */
  signal: AbortSignal;
  /** True if the caller wants a trajectory. */
  captureTraces: boolean;
  /** Run a function as a step of a component: `await step("planner", { question }, () => plan(question))`. */
  step: RunStep<Component>;
  /** Throw a `ParseFailure`: the model's answer `raw` does not have the structure `expected`. */
  parseFailure(raw: string, expected: string, message?: string): never;
  /** Append JSON entries here: they become part of the trajectory. */
  trace: unknown[];
  /** Set what the attempt cost: `cost_usd`, `input_tokens`, `output_tokens`, `calls`. */
  usage: Usage;
}

/** What the other functions get besides their arguments. */
export interface CallContext {
  /** Aborted when the call was cancelled. */
  signal: AbortSignal;
}

type BatchFields = "status" | "score" | "output" | "trajectory" | "error" | "usage" | "metric_calls" | "seconds";

/** One result of a program's own `evaluate`: a score, or fields of an `ExampleResult`. A result is one metric call unless it has others. */
export type BatchResult = Score | (Partial<Pick<ExampleResult, BatchFields>> & WithScore);

/** What `score` gets besides the example and the output. */
export interface ScoreContext {
  /** Aborted when the example reaches its deadline or the call is cancelled. */
  signal: AbortSignal;
  /** Set what the scoring cost; it is added to the usage of `run`. */
  usage: Usage;
  /** What happened on the way, if the program has `readsTrajectory`: `{ steps }`, or what `run` appended to `trace`, if anything. */
  trajectory: unknown;
}

interface Scorer<Data, Output> {
  score(example: Data, output: Output, context: ScoreContext): Score | Promise<Score>;
  /** Whether `score` reads `context.trajectory`; default false. Every example is then traced. */
  readsTrajectory?: boolean;
}

interface ProgramHead<Data> {
  name: string;
  version?: string;
  /** True if a candidate has the same output, score and feedback each time it runs on a row: then none runs twice. */
  deterministic?: boolean;
  /**
   * A schema of zod, valibot, arktype or another library with Standard Schema: every row is validated with it, and `run`,
   * `evaluate` and `score` get what it returns. It infers the type of a row.
   */
  rowSchema?: StandardSchema<unknown, Data>;
  /** Rows this program holds: split -> rows, or a file of rows; their ids are their positions. */
  datasets?: Record<string, RowSource<Data>>;
}

interface ProgramBase<Data, Output, Component extends string> extends ProgramHead<Data>, Partial<Scorer<Data, Output>> {
  /** The seed candidate, or a function that makes it; called once. */
  seedCandidate: Candidate<Component> | (() => Candidate<Component> | Promise<Candidate<Component>>);
  /** Component name -> its purpose, for the reflection model. */
  componentDescriptions?: Partial<Record<NoInfer<Component>, string>>;
  /** Make the records for reflection; `evalBatch` has data and trajectories inline. Without it, the optimizer makes them. */
  makeReflectiveDataset?(
    candidate: Candidate<Component>,
    evalBatch: EvalBatch,
    componentsToUpdate: Component[],
    context: CallContext,
  ): ReflectiveDataset | Promise<ReflectiveDataset>;
  proposeNewTexts?(
    candidate: Candidate<Component>,
    reflectiveDataset: ReflectiveDataset,
    componentsToUpdate: Component[],
    context: CallContext,
  ): NewTexts<Component> | Promise<NewTexts<Component>>;
  /** Called once at the end of a run; the text it returns is shown to the user who started the run. */
  finalize?(
    bestCandidate: Candidate<Component>,
    bestScore: number,
    run: RunInfo,
    context: CallContext,
  ): string | undefined | null | Promise<string | undefined | null>;
}

/** A program that runs one example at a time; without `score`, another server scores its outputs. */
export interface FunctionProgram<Data = unknown, Output = unknown, Component extends string = string>
  extends ProgramBase<Data, Output, Component> {
  run(example: Data, candidate: Candidate<Component>, context: RunContext<Component>): Output | Promise<Output>;
}

/** A program that evaluates a batch itself; results in the batch's order and of its length. */
export interface BatchProgram<Data = unknown, Output = unknown, Component extends string = string>
  extends ProgramBase<Data, Output, Component> {
  evaluate(
    candidate: Candidate<Component>,
    batch: { id: string; data: Data }[],
    context: CallContext & { captureTraces: boolean },
  ): BatchResult[] | Promise<BatchResult[]>;
  /**
   * True (the default): a minibatch reaches `evaluate` as one call, with the deadline of one example times its length.
   * False: `evaluate` is called with one example at a time, as many at once as `concurrency` allows.
   */
  wholeBatches?: boolean;
}

/** A program that only scores the outputs of other programs: it has no components and runs no examples. */
export interface ScoreProgram<Data = unknown, Output = unknown> extends ProgramHead<Data>, Scorer<Data, Output> {
  run?: never;
  evaluate?: never;
  seedCandidate?: never;
  componentDescriptions?: never;
  makeReflectiveDataset?: never;
  proposeNewTexts?: never;
  finalize?: never;
}

export type Program<Data = unknown, Output = unknown, Component extends string = string> =
  | FunctionProgram<Data, Output, Component>
  | BatchProgram<Data, Output, Component>
  | ScoreProgram<Data, Output>;

/** Return the program, with the types of its rows, outputs and components inferred, to serve and use it in several places. */
export function defineProgram<Data, Output>(program: ScoreProgram<Data, Output>): ScoreProgram<Data, Output>;
export function defineProgram<Data, Output, Component extends string>(
  program: BatchProgram<Data, Output, Component>,
): BatchProgram<Data, Output, Component>;
export function defineProgram<Data, Output, Component extends string>(
  program: FunctionProgram<Data, Output, Component>,
): FunctionProgram<Data, Output, Component>;
export function defineProgram(program: Program): Program {
  return program;
}

/** The candidate of a program, by its type; also that of a seed candidate, or of the names of components. */
export type CandidateOf<Type> = Type extends { seedCandidate: infer Seed extends object }
  ? Candidate<keyof Made<Seed> & string>
  : Type extends readonly (infer Component extends string)[]
    ? Candidate<Component>
    : Candidate<keyof Type & string>;

type Made<Seed> = Seed extends () => infer Result ? Awaited<Result> : Seed;

export function isScoreProgram(program: Program): program is ScoreProgram {
  return !("run" in program || "evaluate" in program || "seedCandidate" in program) && "score" in program;
}

export function isBatchProgram(program: Program): program is BatchProgram {
  return "evaluate" in program;
}

export function takesWholeBatches(program: Program): boolean {
  return isBatchProgram(program) && program.wholeBatches !== false;
}

const FUNCTION_IF_ANY: Kind = [A_FUNCTION[0], "a function, or absent"];

/** The parts of a program; a class may hold them in its prototype. */
export const PROGRAM_PARTS: Record<keyof (FunctionProgram & BatchProgram), Kind> = {
  name: ANYTHING,
  version: ANYTHING,
  deterministic: ANYTHING,
  rowSchema: ANYTHING,
  datasets: ANYTHING,
  seedCandidate: ANYTHING,
  componentDescriptions: ANYTHING,
  run: A_FUNCTION,
  evaluate: A_FUNCTION,
  wholeBatches: TRUE_OR_FALSE,
  score: FUNCTION_IF_ANY,
  readsTrajectory: TRUE_OR_FALSE,
  makeReflectiveDataset: FUNCTION_IF_ANY,
  proposeNewTexts: FUNCTION_IF_ANY,
  finalize: FUNCTION_IF_ANY,
};

/** Throws `SetupError` if the value is not a program. */
export function checkProgram(program: Program): void {
  if (!isObject(program)) throw new SetupError(`the program must be an object, not ${shown(program)}`);
  const { name, seedCandidate } = program;
  if (typeof name !== "string" || name === "") throw new SetupError("the program needs a `name`, a text");
  const scoresOnly = isScoreProgram(program);
  if (!scoresOnly && (isBatchProgram(program) ? program.evaluate : program.run) === undefined) {
    throw new SetupError(
      "the program needs a function: `run(example, candidate)`, or `evaluate(candidate, batch)`" +
        (program.score === undefined ? "" : "; one that only scores has no `seedCandidate` either"),
    );
  }
  checkKinds(program, PROGRAM_PARTS);
  if (program.rowSchema !== undefined) checkSchema("rowSchema", program.rowSchema);
  if (program.readsTrajectory && program.score === undefined) {
    throw new SetupError("`readsTrajectory` is about `score`, which the program does not have");
  }
  const fault = scoresOnly || typeof seedCandidate === "function" ? undefined : faultOfSeed(seedCandidate);
  if (fault !== undefined) throw new SetupError(fault);
}

function faultOfSeed(seed: unknown): string | undefined {
  const meant = '`seedCandidate` must map components to the texts to start from, such as { prompt: "..." }';
  if (!isObject(seed)) return `${meant}; it is ${shown(seed)}`;
  const parts = Object.entries(seed);
  if (parts.length === 0) return `${meant}; it is empty`;
  const wrong = parts.find(([, text]) => typeof text !== "string");
  if (wrong !== undefined) return `${meant}; its \`${wrong[0]}\` is ${shown(wrong[1])}`;
  const half = parts.find(([name, text]) => !(name + text).isWellFormed());
  return half && `\`seedCandidate\`: its \`${half[0]}\` has half of a surrogate pair`;
}

/** Make the seed candidate, empty for a program that only scores. Throws `ProgramFailed` if that fails. */
export async function seedOf(program: Program): Promise<Candidate> {
  if (isScoreProgram(program)) return {};
  const { seedCandidate } = program;
  let seed: unknown;
  try {
    seed = typeof seedCandidate === "function" ? await invokeProgram(seedCandidate) : seedCandidate;
  } catch (error) {
    const { type, message, traceback } = describeFailure(error);
    const details = { stage: "seed_candidate", ...(traceback === undefined ? {} : { log_tail: traceback }) };
    throw new ProgramFailed(`${type}: ${message}`, details);
  }
  const fault = faultOfSeed(seed);
  if (fault !== undefined) throw new ProgramFailed(fault, { stage: "seed_candidate" });
  return { ...(seed as Candidate) };
}
