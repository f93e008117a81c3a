/**
 * Run a candidate on examples: a bounded number at once, each under its deadline, each failure as a result.
 *
 * All examples share one event loop. An example past its deadline is timed out only if nothing else was running, or if the
 * loop was free for all but a tenth of the limit, a time that is added to the example's. Any other example may have been
 * delayed by its neighbours, and runs once more alone.
 */

import type { Cancellation } from "../base/cancellation.js";
import { unpacked } from "../base/exact-values.js";
import { InvalidResult } from "../base/invalid-result.js";
import { type JsonValue, toExactJson, toJsonValue } from "../base/json.js";
import { jsonOrRepr } from "../base/json-or-repr.js";
import { type Log, Notices } from "../base/notices.js";
import { joined, summed } from "../base/usage.js";
import type { ExampleResult, Step, Usage } from "../generated/types.js";
import {
  type BatchProgram,
  type Candidate,
  type FunctionProgram,
  isBatchProgram,
  type Program,
  type ScoreContext,
  takesWholeBatches,
} from "../program/program.js";
import type { ExampleRow } from "../rows/rows.js";
import { watchAiSdk } from "../steps/ai-sdk-telemetry.js";
import { runExample } from "../steps/spans.js";
import { StepRecorder } from "../steps/step-recorder.js";
import { parseFailure, unrecordedStep } from "../steps/steps.js";
import type { Call } from "../wire/call.js";
import { ExampleCalls } from "../wire/example-calls.js";
import { whileRunning } from "../wire/place.js";
import { watchNetwork } from "../wire/watch.js";
import { reportComponentFeedback } from "./component-feedback.js";
import { type Outcome, runWithDeadline } from "./deadline.js";
import { measureLag } from "./event-loop-lag.js";
import { logged, withLog } from "./example-log.js";
import {
  type Attempt,
  cancelledResult,
  failedResult,
  finishedResult,
  type ReadScore,
  readBatchResult,
  readScore,
  rescored,
  timedOutResult,
  withoutModelResult,
  withTrajectory,
} from "./example-results.js";
import type { Slots } from "./slots.js";

/** How long examples that never wait may block the event loop. */
const MAX_BLOCKED_MS = 20;

/** The share of a limit for which the event loop may be blocked before its examples count as delayed. */
const MAX_BLOCKED_SHARE = 0.1;
const ALONE = "while no other example ran in its process";
const RESPONSIVE = "while its process was responsive";

/**
 * One evaluation. `onResult` is called exactly once for each position of `batch`, in any order. `timeoutS`: seconds of
 * each example, if that is less than the runner's own limit.
 */
export interface Evaluation {
  candidate: Candidate;
  batch: readonly ExampleRow[];
  captureTraces: boolean;
  timeoutS?: number | undefined;
  onResult: (position: number, result: ExampleResult) => void;
}

/** Thrown by an attempt past its deadline that other examples may have delayed. */
class InconclusiveAttempt {
  constructor(readonly usage: Usage) {}
}

/** How an attempt is made: alone or not, after inconclusive attempts that cost `spent`. */
interface AttemptConditions {
  alone: boolean;
  spent: Usage;
  cancellation: Cancellation;
}

/** What a runner keeps to. */
interface Rules {
  /** Seconds one example may run; undefined for no deadline. */
  exampleTimeoutS: number | undefined;
  /** False if the peer does that. */
  enforcesDeadlines: boolean;
  /** Hosts at which every call is one of a model. */
  modelHosts: ReadonlySet<string>;
  /** Whether a returned result counts although the last call of a model failed. */
  trustResults: boolean;
  log: Log;
}

export class Runner {
  readonly #notices: Notices;
  #yieldRequestedAt: number | undefined;

  constructor(
    private readonly program: Program,
    private readonly slots: Slots,
    private readonly rules: Rules,
  ) {
    this.#notices = new Notices(rules.log);
    watchNetwork();
  }

  async evaluate(evaluation: Evaluation, cancellation: Cancellation): Promise<void> {
    const { batch } = evaluation;
    const positions = batch.map((_, position) => position);
    const units = takesWholeBatches(this.program) && batch.length > 0 ? [positions] : positions.map((at) => [at]);
    await Promise.all(units.map((unit) => this.#unit(evaluation, unit, cancellation)));
  }

  /** Run the examples of one call into the program when there is room for them. */
  async #unit(evaluation: Evaluation, positions: number[], cancellation: Cancellation): Promise<void> {
    const rows = positions.map((position) => evaluation.batch[position] as ExampleRow);
    const { program } = this;
    const results = await this.#withIsolatedRerun(rows.length, cancellation, async (conditions) => {
      const [ended, log] = await logged(async () =>
        isBatchProgram(program)
          ? this.#batch(program, evaluation, rows, conditions)
          : [await this.#example(program as FunctionProgram, evaluation, rows[0] as ExampleRow, conditions)],
      );
      return ended.map((result) => withLog(result, log));
    });
    positions.forEach((position, at) => {
      evaluation.onResult(position, results?.[at] ?? cancelledResult({ seconds: 0, calls: new ExampleCalls() }));
    });
  }

  /**
   * Make an attempt when there is room for its examples; if it is inconclusive, repeat it while nothing else runs.
   * Undefined if it was cancelled while it waited.
   */
  async #withIsolatedRerun<Value>(
    examples: number,
    cancellation: Cancellation,
    attempt: (conditions: AttemptConditions) => Promise<Value>,
  ): Promise<Value | undefined> {
    const { capacity } = this.slots;
    let spent: Usage = {};
    for (const alone of [false, true]) {
      const weight = alone ? capacity : Math.min(examples, capacity);
      if (!(await this.slots.enter(weight, cancellation))) return undefined;
      try {
        await this.#yieldToEventLoop();
        return await attempt({ alone, spent, cancellation });
      } catch (error) {
        if (!(error instanceof InconclusiveAttempt)) throw error;
        spent = error.usage;
      } finally {
        this.slots.leave(weight);
      }
    }
    throw new Error("an attempt was inconclusive although nothing else ran");
  }

  /** Return the seconds that an example may run: the runner's own limit, or less if a call asks for it. */
  #limitS(requestedS: number | undefined): number | undefined {
    const { exampleTimeoutS, enforcesDeadlines } = this.rules;
    if (!enforcesDeadlines) return undefined;
    const limitS = Math.min(exampleTimeoutS ?? Number.POSITIVE_INFINITY, requestedS ?? Number.POSITIVE_INFINITY);
    return limitS === Number.POSITIVE_INFINITY ? undefined : limitS;
  }

  /** Run `work` under a deadline in seconds; what it does over the network is kept in `calls`. */
  #timed<Value>(
    work: (signal: AbortSignal) => Promise<Value>,
    seconds: number | undefined,
    { alone, cancellation }: AttemptConditions,
    calls: ExampleCalls,
  ): Promise<Outcome<Value>> {
    return whileRunning(calls, async () => {
      if (seconds === undefined) return runWithDeadline(work, cancellation);
      const measurement = measureLag(seconds);
      const clock = stopwatch();
      const isBlocked = (): boolean => measurement.blockedS() > MAX_BLOCKED_SHARE * seconds;
      const leftS = (): number => seconds + (alone || isBlocked() ? 0 : measurement.blockedS()) - clock();
      const fault = (): string | undefined => {
        if (alone) return ALONE;
        return isBlocked() ? undefined : RESPONSIVE;
      };
      try {
        return await runWithDeadline(work, cancellation, { leftS, fault });
      } finally {
        measurement.end();
      }
    });
  }

  async #example(
    program: FunctionProgram,
    { candidate, captureTraces, timeoutS }: Evaluation,
    { row }: ExampleRow,
    conditions: AttemptConditions,
  ): Promise<ExampleResult> {
    const clock = stopwatch();
    const limitS = this.#limitS(timeoutS);
    const trace: unknown[] = [];
    const usage: Usage = {};
    const scoring: Usage = {};
    const calls = new ExampleCalls(this.rules.modelHosts);
    let measured: Usage | undefined;
    const onUsage = (more: Usage): void => {
      measured = joined(measured, more);
    };
    const stated = (): Usage => (Object.keys(usage).length > 0 ? usage : (measured ?? usage));
    const attempt = (): Attempt & { usage: Usage } => ({
      seconds: clock(),
      usage: summed(conditions.spent, summed(stated(), scoring)),
      calls,
    });
    const components = Object.keys(candidate);
    const { readsTrajectory = false } = program;
    const recorder = captureTraces || readsTrajectory ? new StepRecorder(candidate, this.#notices) : undefined;
    const { step = unrecordedStep } = recorder ?? {};
    const ending = await this.#timed(
      async (signal) => {
        const context = { signal, captureTraces, trace, usage, step, parseFailure };
        if (recorder !== undefined) watchAiSdk();
        const run = () => program.run(row, { ...candidate }, context);
        const output = await runExample(recorder, onUsage, run);
        const steps = recorder?.end(true) ?? [];
        const taken = toExactJson(output, "output");
        const failed = this.#modelFailed(calls);
        if (failed !== undefined) return withoutModelResult(failed, taken, attempt());
        const judging = (): ScoreContext => {
          const recorded = readsTrajectory ? trajectoryOf(steps, trace) : undefined;
          const trajectory = recorded === undefined ? undefined : toJsonValue(recorded, "trace");
          return { signal, usage: scoring, trajectory };
        };
        const score = program.score && readScore(await program.score(row, output, judging()), this.#notices);
        const unjudged = this.#modelFailed(calls);
        if (unjudged !== undefined) return withoutModelResult(unjudged, taken, attempt());
        const trajectory = captureTraces ? trajectoryOf(steps, trace) : undefined;
        const result = finishedResult(taken, score, { ...attempt(), trajectory });
        reportComponentFeedback(result, trajectory, components, this.#notices);
        return result;
      },
      limitS,
      conditions,
      calls,
    );
    if (ending.kind === "done") return ending.value;
    const steps = recorder?.end(false) ?? [];
    const failed = unfinished(ending, limitS, attempt());
    if (!captureTraces || failed.status === "cancelled") return failed;
    return withTrajectory(failed, trajectoryOf(steps, trace));
  }

  /** The call of a model that was the last and failed; undefined if results are taken all the same. */
  #modelFailed({ openModelCall }: ExampleCalls): Call | undefined {
    return this.rules.trustResults ? undefined : openModelCall;
  }

  /** Return the same result with a score; a result that failed or was never run is returned unchanged. */
  async score(
    { row }: ExampleRow,
    result: ExampleResult,
    cancellation: Cancellation,
    timeoutS: number | undefined,
  ): Promise<ExampleResult> {
    if (result.status !== "rollout" && result.status !== "ok") return result;
    const limitS = this.#limitS(timeoutS);
    const scoring = await this.#withIsolatedRerun(1, cancellation, async (conditions) => {
      const clock = stopwatch();
      const usage: Usage = {};
      const calls = new ExampleCalls(this.rules.modelHosts);
      const judge = async (signal: AbortSignal) => {
        const trajectory = this.program.readsTrajectory ? inlineTrajectory(result) : undefined;
        const given = await this.program.score?.(row, unpacked(result.output), { signal, usage, trajectory });
        return readScore(given, this.#notices);
      };
      const [ending, log] = await logged(() => this.#timed(judge, limitS, conditions, calls));
      const attempt = { seconds: clock(), usage: summed(conditions.spent, usage), calls };
      const failed = ending.kind === "done" ? this.#modelFailed(calls) : undefined;
      const done = (score: ReadScore) =>
        failed === undefined ? finishedResult(null, score, attempt) : withoutModelResult(failed, null, attempt);
      return withLog(ending.kind === "done" ? done(ending.value) : unfinished(ending, limitS, attempt), log);
    });
    return scoring === undefined ? result : rescored(result, scoring);
  }

  async #batch(
    program: BatchProgram,
    { candidate, captureTraces, timeoutS: requestedS }: Evaluation,
    rows: readonly ExampleRow[],
    conditions: AttemptConditions,
  ): Promise<ExampleResult[]> {
    const clock = stopwatch();
    const calls = new ExampleCalls(this.rules.modelHosts);
    const limitS = this.#limitS(requestedS);
    const timeoutS = limitS && limitS * rows.length;
    const batch = rows.map(({ id, row }) => ({ id, data: row }));
    const ending = await this.#timed(
      async (signal) =>
        readAll(await program.evaluate({ ...candidate }, batch, { captureTraces, signal }), rows.length),
      timeoutS,
      conditions,
      calls,
    );
    const attempt = { seconds: clock() / rows.length, calls };
    if (ending.kind !== "done") {
      const failed = unfinished(ending, timeoutS, attempt);
      return rows.map(() => failed);
    }
    const unanswered = this.#modelFailed(calls);
    return ending.value.map((given) => {
      try {
        const result = readBatchResult(given, attempt, captureTraces, this.#notices);
        const isTaken = result.status === "ok" || result.status === "rollout";
        if (isTaken && unanswered !== undefined)
          return withoutModelResult(unanswered, (result.output ?? null) as JsonValue, attempt);
        reportComponentFeedback(result, result.trajectory, Object.keys(candidate), this.#notices);
        return result;
      } catch (error) {
        return failedResult(error, attempt);
      }
    });
  }

  /** Let timers and connections run if programs that never wait have blocked them. */
  async #yieldToEventLoop(): Promise<void> {
    if (this.#yieldRequestedAt === undefined) {
      this.#yieldRequestedAt = performance.now();
      setTimeout(() => {
        this.#yieldRequestedAt = undefined;
      });
    } else if (performance.now() - this.#yieldRequestedAt > MAX_BLOCKED_MS) {
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
}

/** The steps, with the program's own entries if there are any; else the entries; undefined without either. */
function trajectoryOf(steps: Step[], trace: unknown[]): unknown {
  if (steps.length === 0) return trace.length > 0 ? trace : undefined;
  return trace.length > 0 ? { steps, trace: jsonOrRepr(trace) } : { steps };
}

/** The trajectory of a result that was sent here. Throws `InvalidResult` for one that stayed at its server. */
function inlineTrajectory({ trajectory, trajectory_ref: ref }: ExampleResult): unknown {
  if (trajectory !== undefined && trajectory !== null) return trajectory;
  if (!ref) return undefined;
  throw new InvalidResult("the scorer reads trajectories, but another server holds this one: send it inline");
}

function readAll(given: unknown, expected: number): unknown[] {
  if (!Array.isArray(given)) throw new InvalidResult("evaluate() must return an array of results");
  if (given.length !== expected) {
    throw new InvalidResult(`evaluate() returned ${given.length} results for ${expected} examples`);
  }
  return given;
}

function unfinished(
  ending: Exclude<Outcome<unknown>, { kind: "done" }>,
  timeoutS: number | undefined,
  attempt: Attempt & { usage?: Usage },
): ExampleResult {
  if (ending.kind === "cancelled") return cancelledResult(attempt);
  if (ending.kind === "failed") return failedResult(ending.error, attempt);
  if (ending.fault === undefined) throw new InconclusiveAttempt(attempt.usage ?? {});
  return timedOutResult(timeoutS, ending.fault, attempt);
}

/** Return a function that reads the seconds since now. */
function stopwatch(): () => number {
  const started = performance.now();
  return () => (performance.now() - started) / 1000;
}
