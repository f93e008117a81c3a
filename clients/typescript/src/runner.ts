/** Runs a candidate on examples: so many at once, each under its deadline, each failure a result of its own. */

import type { Cancellation } from "./cancellation.js";
import { type Ending, within } from "./deadline.js";
import type { ExampleResult, Usage } from "./generated/types.js";
import { toJsonValue } from "./json.js";
import {
  type Attempt,
  cancelledResult,
  failedResult,
  finishedResult,
  InvalidResult,
  readBatchResult,
  readScore,
  rescored,
  summed,
  timedOutResult,
  withTrajectory,
} from "./outcome.js";
import {
  type BatchProgram,
  type Candidate,
  type FunctionProgram,
  isBatchProgram,
  type Program,
  takesWholeBatches,
} from "./program.js";
import type { Slots } from "./slots.js";

/** How long examples that never wait may keep the event loop from everything else. */
const MAX_BLOCKED_MS = 20;

export interface Row {
  id: string;
  data: unknown;
}

/** One evaluation. `onResult` is called exactly once for each position of `batch`, in any order. */
export interface Evaluation {
  candidate: Candidate;
  batch: readonly Row[];
  captureTraces: boolean;
  onResult: (position: number, result: ExampleResult) => void;
}

export class Runner {
  #turnAskedAt: number | undefined;

  /** `timeoutS`: seconds one example may run; undefined for no deadline. */
  constructor(
    private readonly program: Program,
    private readonly slots: Slots,
    private readonly timeoutS: number | undefined,
  ) {}

  async evaluate(evaluation: Evaluation, cancellation: Cancellation): Promise<void> {
    const { batch } = evaluation;
    const positions = batch.map((_, position) => position);
    const units = takesWholeBatches(this.program) && batch.length > 0 ? [positions] : positions.map((at) => [at]);
    await Promise.all(units.map((unit) => this.#unit(evaluation, unit, cancellation)));
  }

  /** Runs examples that are one call into the program, once there is room for them. */
  async #unit(evaluation: Evaluation, positions: number[], cancellation: Cancellation): Promise<void> {
    const weight = Math.min(positions.length, this.slots.capacity);
    const entered = await this.slots.enter(weight, cancellation);
    if (!entered) {
      for (const position of positions) evaluation.onResult(position, cancelledResult(0));
      return;
    }
    try {
      await this.#letOthersRun();
      const rows = positions.map((position) => evaluation.batch[position] as Row);
      const results = isBatchProgram(this.program)
        ? await this.#batch(this.program, evaluation, rows, cancellation)
        : [await this.#example(this.program as FunctionProgram, evaluation, rows[0] as Row, cancellation)];
      positions.forEach((position, at) => {
        evaluation.onResult(position, results[at] as ExampleResult);
      });
    } finally {
      this.slots.leave(weight);
    }
  }

  async #example(
    program: FunctionProgram,
    { candidate, captureTraces }: Evaluation,
    { data }: Row,
    cancellation: Cancellation,
  ): Promise<ExampleResult> {
    const clock = stopwatch();
    const trace: unknown[] = [];
    const usage: Usage = {};
    const scoring: Usage = {};
    const attempt = (): Attempt => ({ seconds: clock(), usage: summed(usage, scoring) });
    const ending = await within(
      async (signal) => {
        const output = await program.run(data, { ...candidate }, { signal, captureTraces, trace, usage });
        const taken = toJsonValue(output, "output");
        const score = program.score && readScore(await program.score(data, output, { signal, usage: scoring }));
        const steps =
          trace.length > 0
            ? trace
            : { data, output: taken, score: score?.score ?? null, feedback: score?.feedback ?? null };
        return finishedResult(taken, score, { ...attempt(), trajectory: captureTraces ? steps : undefined });
      },
      cancellation,
      this.timeoutS,
    );
    if (ending.kind === "done") return ending.value;
    const failed = unfinished(ending, this.timeoutS, attempt());
    if (!captureTraces || failed.status === "cancelled") return failed;
    const { error } = failed;
    return withTrajectory(
      failed,
      trace.length > 0 ? trace : { data, output: null, score: null, feedback: null, error },
    );
  }

  /** The same result with a score; one that failed, or was never run, has nothing to score. */
  async score(row: Row, result: ExampleResult, cancellation: Cancellation): Promise<ExampleResult> {
    if (result.status !== "rollout" && result.status !== "ok") return result;
    if (!(await this.slots.enter(1, cancellation))) return result;
    try {
      await this.#letOthersRun();
      const clock = stopwatch();
      const usage: Usage = {};
      const judge = async (signal: AbortSignal) =>
        readScore(await this.program.score?.(row.data, result.output, { signal, usage }));
      const ending = await within(judge, cancellation, this.timeoutS);
      const attempt = { seconds: clock(), usage };
      return rescored(
        result,
        ending.kind === "done"
          ? finishedResult(null, ending.value, attempt)
          : unfinished(ending, this.timeoutS, attempt),
      );
    } finally {
      this.slots.leave(1);
    }
  }

  async #batch(
    program: BatchProgram,
    { candidate, captureTraces }: Evaluation,
    rows: readonly Row[],
    cancellation: Cancellation,
  ): Promise<ExampleResult[]> {
    const clock = stopwatch();
    const timeoutS = this.timeoutS && this.timeoutS * rows.length;
    const batch = rows.map((row) => ({ ...row }));
    const ending = await within(
      async (signal) =>
        readAll(await program.evaluate({ ...candidate }, batch, { captureTraces, signal }), rows.length),
      cancellation,
      timeoutS,
    );
    const seconds = clock() / rows.length;
    if (ending.kind !== "done") return rows.map(() => unfinished(ending, timeoutS, { seconds }));
    return ending.value.map((given) => {
      try {
        return readBatchResult(given, seconds, captureTraces);
      } catch (error) {
        return failedResult(error, { seconds });
      }
    });
  }

  /** Gives timers and connections a turn where programs that never wait have kept them from theirs. */
  async #letOthersRun(): Promise<void> {
    if (this.#turnAskedAt === undefined) {
      this.#turnAskedAt = performance.now();
      setTimeout(() => {
        this.#turnAskedAt = undefined;
      });
    } else if (performance.now() - this.#turnAskedAt > MAX_BLOCKED_MS) {
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
}

function readAll(given: unknown, expected: number): unknown[] {
  if (!Array.isArray(given)) throw new InvalidResult("evaluate() must return an array of results");
  if (given.length !== expected) {
    throw new InvalidResult(`evaluate() returned ${given.length} results for ${expected} examples`);
  }
  return given;
}

function unfinished(
  ending: Exclude<Ending<unknown>, { kind: "done" }>,
  timeoutS: number | undefined,
  attempt: Attempt,
): ExampleResult {
  if (ending.kind === "cancelled") return cancelledResult(attempt.seconds);
  return ending.kind === "timeout" ? timedOutResult(timeoutS, attempt) : failedResult(ending.error, attempt);
}

/** Reads the seconds since now. */
function stopwatch(): () => number {
  const started = performance.now();
  return () => (performance.now() - started) / 1000;
}
