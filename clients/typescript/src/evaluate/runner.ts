/**
 * Run a candidate on examples: a bounded number at once, each under its deadline, each failure as a result.
 *
 * All examples share one event loop. An example past its deadline is timed out only if nothing else was running, or if the
 * loop was free for all but a tenth of the limit, a time that is added to the example's. Any other example may have been
 * delayed by its neighbours, and runs once more alone.
 */

import type { Cancellation } from "../base/cancellation.js";
import { InvalidResult } from "../base/failure.js";
import { type JsonValue, toExactJson, unpacked } from "../base/json.js";
import { jsonOrRepr } from "../base/json-or-repr.js";
import { Notices } from "../base/notices.js";
import type { Settings } from "../base/options.js";
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
import type { FilledExample } from "../rows/rows.js";
import { watchAiSdk } from "../steps/ai-sdk-telemetry.js";
import { runExample } from "../steps/spans.js";
import { checkComponent, parseFailure, unrecordedStep } from "../steps/steps.js";
import { TrajectoryRecorder } from "../steps/trajectory.js";
import { ExampleCalls } from "../wire/example-calls.js";
import { whileRunning } from "../wire/place.js";
import { watchNetwork } from "../wire/watch.js";
import { runWithDeadline } from "./deadline.js";
import { logged, withLog } from "./example-log.js";
import {
  type Attempt,
  cancelledResult,
  failedResult,
  finishedResult,
  readBatchResult,
  readScore,
  rescored,
  unfinishedResult,
  withoutModelResult,
} from "./example-results.js";

/** How long examples that never wait may block the event loop. */
const MAX_BLOCKED_MS = 20;

/**
 * One evaluation. `onResult` is called exactly once for each position of `batch`, in any order. `timeoutS`: seconds of
 * each example, if that is less than the runner's own limit.
 */
interface Evaluation {
  candidate: Candidate;
  /** With the rows as the program gets them. */
  batch: readonly FilledExample[];
  captureTraces: boolean;
  timeoutS?: number | undefined;
  onResult: (position: number, result: ExampleResult) => void;
}

/** One attempt: `work` returns the results of its examples; `soFar` what is reported of one that did not end by itself. */
interface Trial {
  work(signal: AbortSignal): Promise<ExampleResult[]>;
  soFar(): Attempt & { usage?: Usage };
}

/** Begin an attempt, after others that cost `spent`; what it does over the network is kept in `calls`. */
type Begin = (calls: ExampleCalls, spent: Usage) => Trial;

/** What a runner keeps to. `enforcesDeadlines`: false if the peer does that. */
type Rules = Pick<Settings, "concurrency" | "exampleTimeoutS" | "modelHosts" | "trustResults" | "log"> & {
  enforcesDeadlines: boolean;
};

export class Runner {
  readonly #notices: Notices;
  readonly #slots: Slots;
  #yieldRequestedAt: number | undefined;

  constructor(
    private readonly program: Program,
    private readonly rules: Rules,
  ) {
    this.#slots = new Slots(rules.concurrency);
    this.#notices = new Notices(rules.log);
    watchNetwork();
  }

  async evaluate(evaluation: Evaluation, cancellation: Cancellation): Promise<void> {
    const { batch } = evaluation;
    const isOneCall = takesWholeBatches(this.program) && batch.length > 0;
    const units = isOneCall ? [batch] : batch.map((example) => [example]);
    await Promise.all(units.map((unit, first) => this.#unit(evaluation, unit, first, cancellation)));
  }

  /** Run the examples of one call into the program, from the position `first`, when there is room for them. */
  async #unit(
    evaluation: Evaluation,
    rows: readonly FilledExample[],
    first: number,
    cancellation: Cancellation,
  ): Promise<void> {
    const begin = isBatchProgram(this.program)
      ? this.#batch(this.program, evaluation, rows)
      : this.#example(this.program as FunctionProgram, evaluation, rows[0] as FilledExample);
    const results = await this.#attempted(rows.length, evaluation.timeoutS, cancellation, begin);
    rows.forEach((_, at) => {
      evaluation.onResult(first + at, results?.[at] ?? cancelledResult({ seconds: 0, calls: new ExampleCalls() }));
    });
  }

  /** Return the same result with a score; a result that failed or was never run is returned unchanged. */
  async score(
    { data: row }: FilledExample,
    result: ExampleResult,
    cancellation: Cancellation,
    timeoutS: number | undefined,
  ): Promise<ExampleResult> {
    if (result.status !== "rollout" && result.status !== "ok") return result;
    const begin: Begin = (calls, spent) => {
      const usage: Usage = {};
      const soFar = () => ({ seconds: calls.seconds, usage: summed(spent, usage), calls });
      const work = async (signal: AbortSignal) => {
        const trajectory = this.program.readsTrajectory ? inlineTrajectory(result) : undefined;
        const given = await this.program.score?.(row, unpacked(result.output), { signal, usage, trajectory });
        const score = readScore(given);
        return [this.#withoutModel(soFar()) ?? finishedResult(score, soFar())];
      };
      return { work, soFar };
    };
    const scoring = await this.#attempted(1, timeoutS, cancellation, begin);
    return scoring === undefined ? result : rescored(result, scoring[0] as ExampleResult);
  }

  /**
   * Make an attempt at so many examples when there is room for them; if others may have delayed it past its deadline, repeat
   * it while nothing else runs. Return the results, with what the program wrote; undefined if it was cancelled while it waited.
   */
  async #attempted(
    examples: number,
    timeoutS: number | undefined,
    cancellation: Cancellation,
    begin: Begin,
  ): Promise<ExampleResult[] | undefined> {
    const { capacity } = this.#slots;
    const seconds = this.#limitS(timeoutS) * examples;
    let spent: Usage = {};
    for (const alone of [false, true]) {
      const weight = alone ? capacity : Math.min(examples, capacity);
      if (!(await this.#slots.enter(weight, cancellation))) return undefined;
      try {
        await this.#yieldToEventLoop();
        const calls = new ExampleCalls(this.rules.modelHosts);
        const { work, soFar } = begin(calls, spent);
        const limit = Number.isFinite(seconds) ? { seconds, alone } : undefined;
        const timed = () => whileRunning(calls, () => runWithDeadline(work, cancellation, limit));
        const [ending, log] = await logged(timed);
        if (ending.kind === "done") return ending.value.map((result) => withLog(result, log));
        const attempt = soFar();
        if (ending.kind === "timeout" && ending.fault === undefined) {
          spent = attempt.usage ?? {};
          continue;
        }
        const failed = withLog(unfinishedResult(ending, seconds, attempt), log);
        return Array.from({ length: examples }, () => failed);
      } finally {
        this.#slots.leave(weight);
      }
    }
    throw new Error("an attempt was inconclusive although nothing else ran");
  }

  /** Return the seconds that an example may run: the runner's own limit, or less if a call asks for it. */
  #limitS(requestedS = Number.POSITIVE_INFINITY): number {
    const { exampleTimeoutS = Number.POSITIVE_INFINITY, enforcesDeadlines } = this.rules;
    return enforcesDeadlines ? Math.min(exampleTimeoutS, requestedS) : Number.POSITIVE_INFINITY;
  }

  #example(program: FunctionProgram, { candidate, captureTraces }: Evaluation, { data }: FilledExample): Begin {
    return (calls, spent) => {
      const trace: unknown[] = [];
      const usage: Usage = {};
      const scoring: Usage = {};
      let measured: Usage | undefined;
      const onUsage = (more: Usage): void => {
        measured = joined(measured, more);
      };
      const stated = (): Usage => (Object.keys(usage).length > 0 ? usage : (measured ?? usage));
      let taken: JsonValue = null;
      const attempt = () => ({
        seconds: calls.seconds,
        output: taken,
        usage: summed(spent, summed(stated(), scoring)),
        calls,
      });
      const { readsTrajectory = false } = program;
      const recorder = captureTraces || readsTrajectory ? new TrajectoryRecorder(candidate, this.#notices) : undefined;
      const { step = unrecordedStep } = recorder ?? {};
      const work = async (signal: AbortSignal): Promise<ExampleResult[]> => {
        const context = { signal, captureTraces, trace, usage, step, parseFailure };
        if (recorder !== undefined) watchAiSdk();
        const run = () => program.run(data, { ...candidate }, context);
        const output = await runExample(recorder, onUsage, run);
        const steps = recorder?.end(true) ?? [];
        taken = toExactJson(output, "output");
        const unanswered = this.#withoutModel(attempt());
        if (unanswered !== undefined) return [unanswered];
        const seen = readsTrajectory ? trajectoryOf(steps, trace) : undefined;
        const judging: ScoreContext = { signal, usage: scoring, trajectory: structuredClone(seen) };
        const score = program.score && readScore(await program.score(data, output, judging));
        const trajectory = captureTraces ? trajectoryOf(steps, trace) : undefined;
        const result = this.#withoutModel(attempt()) ?? finishedResult(score, { ...attempt(), trajectory });
        this.#checkFeedback(result, candidate);
        return [result];
      };
      const soFar = () => {
        const steps = recorder?.end(false) ?? [];
        return { ...attempt(), trajectory: captureTraces ? trajectoryOf(steps, trace) : undefined };
      };
      return { work, soFar };
    };
  }

  #batch(program: BatchProgram, { candidate, captureTraces }: Evaluation, rows: readonly FilledExample[]): Begin {
    return (calls) => {
      const soFar = () => ({ seconds: calls.seconds / rows.length, calls });
      const read = (given: unknown, attempt: Attempt): ExampleResult => {
        try {
          const found = readBatchResult(given, attempt, captureTraces);
          const isTaken = found.status === "ok" || found.status === "rollout";
          const output = (found.output ?? null) as JsonValue;
          const result = (isTaken ? this.#withoutModel({ ...attempt, output }) : undefined) ?? found;
          this.#checkFeedback(result, candidate);
          return result;
        } catch (error) {
          return failedResult(error, attempt);
        }
      };
      const work = async (signal: AbortSignal): Promise<ExampleResult[]> => {
        const given = await program.evaluate({ ...candidate }, [...rows], { captureTraces, signal });
        const attempt = soFar();
        return readAll(given, rows.length).map((each) => read(each, attempt));
      };
      return { work, soFar };
    };
  }

  #checkFeedback({ component_feedback: feedback }: ExampleResult, candidate: Candidate): void {
    for (const name of Object.keys(feedback ?? {})) {
      checkComponent(name, candidate, "component_feedback names", this.#notices);
    }
  }

  /** The result of an example whose last call of a model failed; undefined if none did, or if results are taken all the same. */
  #withoutModel(attempt: Attempt): ExampleResult | undefined {
    const { openModelCall } = attempt.calls;
    if (this.rules.trustResults || openModelCall === undefined) return undefined;
    return withoutModelResult(openModelCall, attempt);
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
function trajectoryOf(steps: Step[], trace: unknown[]): JsonValue | undefined {
  const entries = trace.length > 0 ? jsonOrRepr(trace) : undefined;
  if (steps.length === 0) return entries;
  return { steps: steps as unknown as JsonValue, ...(entries === undefined ? {} : { trace: entries }) };
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

/** Room for a number of running examples; others wait in order of arrival. */
class Slots {
  #free: number;
  readonly #waiting = new Set<{ weight: number; enter: () => void }>();

  constructor(readonly capacity: number) {
    this.#free = capacity;
  }

  /** Wait for free capacity in order of arrival; false if cancelled while waiting. */
  enter(weight: number, cancellation: Cancellation): Promise<boolean> {
    if (cancellation.cancelled) return Promise.resolve(false);
    if (this.#waiting.size === 0 && this.#free >= weight) {
      this.#free -= weight;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const waiter = {
        weight,
        enter: () => {
          forget();
          resolve(true);
        },
      };
      const forget = cancellation.onCancel(() => {
        this.#waiting.delete(waiter);
        resolve(false);
        this.#next(); // the next one may need less
      });
      this.#waiting.add(waiter);
    });
  }

  leave(weight: number): void {
    this.#free += weight;
    this.#next();
  }

  #next(): void {
    for (const waiter of this.#waiting) {
      if (waiter.weight > this.#free) return;
      this.#waiting.delete(waiter);
      this.#free -= waiter.weight;
      waiter.enter();
    }
  }
}
