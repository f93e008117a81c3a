/**
 * Runs a candidate on examples: so many at once, each under its deadline, each failure a result of its own.
 *
 * All of them share one event loop. An example past its deadline is timed out only if nothing else was running, or if the
 * loop was free for all but a tenth of the limit, which the example is given back. Any other may have been held up, and
 * runs once more while nothing else does.
 */

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
import { Pulse } from "./pulse.js";
import type { Slots } from "./slots.js";

/** How long examples that never wait may keep the event loop from everything else. */
const MAX_BLOCKED_MS = 20;

/** The share of a limit for which the event loop may be held before what runs on it counts as held up. */
const MAX_HELD = 0.1;
const ALONE = "while running alone";
const RESPONSIVE = "while its process was responsive";

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

/** What an attempt comes to that does not count: it is past its deadline, but others may have held it up. */
class HeldUp {
  constructor(readonly usage: Usage) {}
}

/** How an attempt is made: alone or not, after attempts that did not count and cost `spent`. */
interface Conditions {
  alone: boolean;
  spent: Usage;
  cancellation: Cancellation;
}

export class Runner {
  readonly #pulse: Pulse;
  #turnAskedAt: number | undefined;

  /** `timeoutS`: seconds one example may run; undefined for no deadline. */
  constructor(
    private readonly program: Program,
    private readonly slots: Slots,
    private readonly timeoutS: number | undefined,
  ) {
    this.#pulse = new Pulse(timeoutS ?? 0);
  }

  async evaluate(evaluation: Evaluation, cancellation: Cancellation): Promise<void> {
    const { batch } = evaluation;
    const positions = batch.map((_, position) => position);
    const units = takesWholeBatches(this.program) && batch.length > 0 ? [positions] : positions.map((at) => [at]);
    await Promise.all(units.map((unit) => this.#unit(evaluation, unit, cancellation)));
  }

  /** Runs examples that are one call into the program, once there is room for them. */
  async #unit(evaluation: Evaluation, positions: number[], cancellation: Cancellation): Promise<void> {
    const rows = positions.map((position) => evaluation.batch[position] as Row);
    const { program } = this;
    const results = await this.#fairly(rows.length, cancellation, (conditions) =>
      isBatchProgram(program)
        ? this.#batch(program, evaluation, rows, conditions)
        : this.#example(program as FunctionProgram, evaluation, rows[0] as Row, conditions),
    );
    positions.forEach((position, at) => {
      evaluation.onResult(position, results?.[at] ?? cancelledResult({ seconds: 0 }));
    });
  }

  /**
   * What the attempt gives, made once there is room for so many examples, and where it was held up, once more while
   * nothing else runs. Undefined where it was cancelled while it waited.
   */
  async #fairly<Value extends object>(
    examples: number,
    cancellation: Cancellation,
    attempt: (conditions: Conditions) => Promise<Value | HeldUp>,
  ): Promise<Value | undefined> {
    const { capacity } = this.slots;
    let spent: Usage = {};
    for (const alone of [false, true]) {
      const weight = alone ? capacity : Math.min(examples, capacity);
      if (!(await this.slots.enter(weight, cancellation))) return undefined;
      try {
        await this.#letOthersRun();
        const value = await attempt({ alone, spent, cancellation });
        if (!(value instanceof HeldUp)) return value;
        spent = value.usage;
      } finally {
        this.slots.leave(weight);
      }
    }
    throw new Error("an attempt was held up while nothing else ran");
  }

  /** Runs `work` under a deadline of so many seconds. */
  async #timed<Value>(
    work: (signal: AbortSignal) => Promise<Value>,
    seconds: number | undefined,
    { alone, cancellation }: Conditions,
  ): Promise<Ending<Value>> {
    if (seconds === undefined) return within(work, cancellation);
    const watch = this.#pulse.watch();
    const clock = stopwatch();
    const isHeldUp = (): boolean => watch.heldS() > MAX_HELD * seconds;
    const leftS = (): number => seconds + (alone || isHeldUp() ? 0 : watch.heldS()) - clock();
    const fault = (): string | undefined => {
      if (alone) return ALONE;
      return isHeldUp() ? undefined : RESPONSIVE;
    };
    try {
      return await within(work, cancellation, { leftS, fault });
    } finally {
      watch.end();
    }
  }

  async #example(
    program: FunctionProgram,
    { candidate, captureTraces }: Evaluation,
    { data }: Row,
    conditions: Conditions,
  ): Promise<[ExampleResult] | HeldUp> {
    const clock = stopwatch();
    const trace: unknown[] = [];
    const usage: Usage = {};
    const scoring: Usage = {};
    const attempt = (): Attempt & { usage: Usage } => ({
      seconds: clock(),
      usage: summed(conditions.spent, summed(usage, scoring)),
    });
    const ending = await this.#timed(
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
      this.timeoutS,
      conditions,
    );
    if (ending.kind === "done") return [ending.value];
    const failed = unfinished(ending, this.timeoutS, attempt());
    if (failed instanceof HeldUp) return failed;
    if (!captureTraces || failed.status === "cancelled") return [failed];
    const { error } = failed;
    const steps = trace.length > 0 ? trace : { data, output: null, score: null, feedback: null, error };
    return [withTrajectory(failed, steps)];
  }

  /** The same result with a score; one that failed, or was never run, has nothing to score. */
  async score(row: Row, result: ExampleResult, cancellation: Cancellation): Promise<ExampleResult> {
    if (result.status !== "rollout" && result.status !== "ok") return result;
    const scoring = await this.#fairly(1, cancellation, async (conditions) => {
      const clock = stopwatch();
      const usage: Usage = {};
      const judge = async (signal: AbortSignal) =>
        readScore(await this.program.score?.(row.data, result.output, { signal, usage }));
      const ending = await this.#timed(judge, this.timeoutS, conditions);
      const attempt = { seconds: clock(), usage: summed(conditions.spent, usage) };
      if (ending.kind === "done") return finishedResult(null, ending.value, attempt);
      return unfinished(ending, this.timeoutS, attempt);
    });
    return scoring === undefined ? result : rescored(result, scoring);
  }

  async #batch(
    program: BatchProgram,
    { candidate, captureTraces }: Evaluation,
    rows: readonly Row[],
    conditions: Conditions,
  ): Promise<ExampleResult[] | HeldUp> {
    const clock = stopwatch();
    const timeoutS = this.timeoutS && this.timeoutS * rows.length;
    const batch = rows.map((row) => ({ ...row }));
    const ending = await this.#timed(
      async (signal) =>
        readAll(await program.evaluate({ ...candidate }, batch, { captureTraces, signal }), rows.length),
      timeoutS,
      conditions,
    );
    const seconds = clock() / rows.length;
    if (ending.kind !== "done") {
      const failed = unfinished(ending, timeoutS, { seconds });
      return failed instanceof HeldUp ? failed : rows.map(() => failed);
    }
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
  attempt: Attempt & { usage?: Usage },
): ExampleResult | HeldUp {
  if (ending.kind === "cancelled") return cancelledResult(attempt);
  if (ending.kind === "failed") return failedResult(ending.error, attempt);
  if (ending.fault === undefined) return new HeldUp(attempt.usage ?? {});
  return timedOutResult(timeoutS, ending.fault, attempt);
}

/** Reads the seconds since now. */
function stopwatch(): () => number {
  const started = performance.now();
  return () => (performance.now() - started) / 1000;
}
