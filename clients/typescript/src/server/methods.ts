/** The methods as jobs: params are checked in full before anything runs. */

import type { Cancellation } from "../base/cancellation.js";
import { describeFailure, InvalidResult } from "../base/failure.js";
import { NotJson, toJsonValue } from "../base/json.js";
import { faults, invalidParams, unpackedParam, type WireTypeName } from "../base/validate.js";
import { isObject, shown } from "../base/values.js";
import { runWithDeadline } from "../evaluate/deadline.js";
import { withinBytes } from "../evaluate/example-results.js";
import type { Runner } from "../evaluate/runner.js";
import type { MethodTypes } from "../generated/contract.js";
import { CallCancelled, ProgramFailed, UnknownCandidate } from "../generated/errors.js";
import type { DiscoverResult, EvalBatch, ExampleResult, PartialResult, Progress } from "../generated/types.js";
import { extractImages, restoreImages } from "../program/images.js";
import { type CallContext, type Candidate, isScoreProgram, type Program } from "../program/program.js";
import type { FilledExample, Rows } from "../rows/rows.js";
import { ExampleCalls } from "../wire/example-calls.js";
import { judge } from "../wire/infrastructure-failures.js";
import { whileRunning } from "../wire/place.js";
import type { Job } from "./calls.js";
import type { TrajectoryStore } from "./trajectory-store.js";

/** What makes a job of a request. */
type JobOf<Name extends keyof MethodTypes> = (params: MethodTypes[Name]["params"]) => Job;

/** The methods of a program. */
export type Jobs = {
  [Name in "evaluate" | "make_reflective_dataset" | "propose_new_texts" | "score" | "finalize"]: JobOf<Name>;
};

/** Make a job of each request; each method throws an `RpcError` if the params are not usable. `held`: the program's rows. */
export function jobsOf(
  program: Program,
  runner: Runner,
  held: Rows,
  traces: TrajectoryStore,
  { program: { seed_candidate: seedCandidate }, server: { instance_id: instanceId }, limits }: DiscoverResult,
): Jobs {
  const evaluate: Jobs["evaluate"] = ({ candidate, batch, capture_traces: captureTraces = false, items, _meta }) => {
    if (items) {
      throw invalidParams({ path: "items", message: "this server does not offer capability `batch_evaluate`" });
    }
    checkCandidate(candidate);
    const filled = held.withData(batch);
    if (filled.length > 0 && isScoreProgram(program)) {
      throw new ProgramFailed("the program has no `run`: it only scores the outputs of other programs", {
        stage: "evaluate",
      });
    }
    const results: (ExampleResult | undefined)[] = filled.map(() => undefined);
    const progress: Progress = { done: 0, total: filled.length };
    const group = _meta?.group ?? undefined;
    const timeoutS = _meta?.example_timeout_s ?? undefined;
    const hidden = held.hidden(batch);
    const onResult = (position: number, result: ExampleResult): void => {
      const sent =
        captureTraces && group !== undefined ? traces.outgoing(result, group, instanceId, hidden[position]) : result;
      results[position] = withinBytes(sent, limits.max_result_bytes ?? Number.POSITIVE_INFINITY);
      progress.done++;
    };
    const run = async (cancellation: Cancellation): Promise<unknown> => {
      const checkedBatch = await held.checked(filled);
      await runner.evaluate({ candidate, batch: checkedBatch, captureTraces, timeoutS, onResult }, cancellation);
      return { results };
    };
    const finishedResults = () =>
      results.flatMap((result, index): PartialResult[] => (result === undefined ? [] : [{ index, result }]));
    return { progress, finishedResults, run };
  };

  const makeReflectiveDataset: Jobs["make_reflective_dataset"] = (params) => {
    const { candidate, eval_batch: sent, components_to_update: components } = params;
    checkCandidate(candidate);
    checkComponents(components, candidate);
    const rows = paired(sent.batch, sent.results, "eval_batch.results");
    const results = traces.inline(sent.results).map((result, at) => {
      return { ...result, output: unpackedParam(result.output, `eval_batch.results[${at}].output`) };
    });
    const evalBatch: EvalBatch = { batch: rows, results };
    return oneStep("make_reflective_dataset", "MakeReflectiveDatasetResult", async (context) => {
      const made = await program.makeReflectiveDataset?.({ ...candidate }, evalBatch, components, context);
      return extractImages(made ?? {});
    });
  };

  const proposeNewTexts: Jobs["propose_new_texts"] = (params) => {
    const { candidate, components_to_update: components } = params;
    const dataset = restoreImages(params.reflective_dataset, params.images);
    checkCandidate(candidate);
    checkComponents(components, candidate);
    return oneStep("propose_new_texts", "ProposeNewTextsResult", async (context) => {
      const texts: unknown = await program.proposeNewTexts?.({ ...candidate }, dataset, components, context);
      const fault = faultOfTexts(texts, components);
      if (fault !== undefined) {
        const advice = "return an object from component to new text, with no component but those asked for";
        throw new InvalidResult(`proposeNewTexts() returned ${fault}; ${advice}`);
      }
      return proposed(texts as object);
    });
  };

  const score: Jobs["score"] = ({ batch, results, _meta }) => {
    const rows = paired(batch, results, "results");
    const timeoutS = _meta?.example_timeout_s ?? undefined;
    const progress: Progress = { done: 0, total: rows.length };
    const scored = async (row: FilledExample, at: number, cancellation: Cancellation): Promise<ExampleResult> => {
      try {
        return await runner.score(row, results[at] as ExampleResult, cancellation, timeoutS);
      } finally {
        progress.done++;
      }
    };
    const run = async (cancellation: Cancellation): Promise<unknown> => {
      const checkedRows = await held.checked(rows);
      const answer = { results: await Promise.all(checkedRows.map((row, at) => scored(row, at, cancellation))) };
      if (cancellation.cancelled) throw new CallCancelled();
      return answer;
    };
    return { progress, run };
  };

  const finalize: Jobs["finalize"] = ({ best_candidate: best, best_score: bestScore, run }) => {
    checkCandidate(best);
    return oneStep("finalize", "FinalizeResult", async (context) => {
      const message = await program.finalize?.({ ...best }, bestScore, run, context);
      return message === undefined || message === null ? {} : { message };
    });
  };

  const checkCandidate = (candidate: Candidate): void => {
    const unknown = Object.keys(candidate).filter((name) => !Object.hasOwn(seedCandidate, name));
    const missing = Object.keys(seedCandidate).filter((name) => !Object.hasOwn(candidate, name));
    if (unknown.length + missing.length > 0) throw new UnknownCandidate(undefined, { unknown, missing });
  };

  /** Return the rows of `batch`, which must be as many as the results. */
  const paired = (batch: EvalBatch["batch"], results: readonly ExampleResult[], path: string): FilledExample[] => {
    if (batch.length !== results.length) {
      throw invalidParams({ path, message: `${results.length} results for ${batch.length} examples` });
    }
    return held.withData(batch);
  };

  return {
    evaluate,
    make_reflective_dataset: makeReflectiveDataset,
    propose_new_texts: proposeNewTexts,
    score,
    finalize,
  };
}

function checkComponents(components: readonly string[], candidate: Candidate): void {
  const unknown = components.filter((name) => !Object.hasOwn(candidate, name));
  if (unknown.length > 0) throw new UnknownCandidate(undefined, { unknown });
}

/** How the answer of `proposeNewTexts` is no object for these components; undefined if it is one. */
function faultOfTexts(texts: unknown, components: readonly string[]): string | undefined {
  if (!isObject(texts)) return shown(texts);
  for (const name of Object.keys(texts)) {
    if (!components.includes(name)) {
      const asked = components.map((each) => `\`${each}\``).join(" and ") || "none";
      return `a text for \`${name}\`, but the third argument holds ${asked} alone`;
    }
  }
  return undefined;
}

/** The texts that were proposed, with why others are no text of Unicode. */
function proposed(texts: object): { texts: Record<string, string>; refused?: Record<string, string> } {
  const given = Object.entries(texts).filter(([, text]) => text !== undefined);
  const faulty = given.flatMap(([name, text]) => {
    if (typeof text !== "string") return [[name, `${shown(text)} is no text`]];
    return text.isWellFormed() ? [] : [[name, "it holds half of a surrogate pair"]];
  });
  const refused = Object.fromEntries(faulty) as Record<string, string>;
  const usable = Object.fromEntries(given.filter(([name]) => !Object.hasOwn(refused, name)));
  return { texts: usable, ...(faulty.length === 0 ? {} : { refused }) };
}

type Work = (context: CallContext) => Promise<unknown>;

/** A job that is one call into the program and does not belong to one example. */
function oneStep(method: string, type: WireTypeName, work: Work): Job {
  const progress: Progress = { done: 0, total: 1 };
  const run = async (cancellation: Cancellation): Promise<unknown> => {
    const calls = new ExampleCalls();
    const watched = () => runWithDeadline(async (signal) => checked(await work({ signal }), type), cancellation);
    const ending = await whileRunning(calls, watched);
    progress.done = 1;
    if (ending.kind === "done") return ending.value;
    if (ending.kind !== "failed") throw new CallCancelled();
    throw programFailed(method, ending.error, calls);
  };
  return { progress, run };
}

function checked(given: unknown, type: WireTypeName): unknown {
  const answer = toJsonValue(given);
  const [fault] = faults(type, answer);
  if (fault !== undefined)
    throw new InvalidResult(`the answer does not fit the contract: ${fault.path}: ${fault.message}`);
  return answer;
}

function programFailed(stage: string, error: unknown, calls: ExampleCalls): ProgramFailed {
  if (error instanceof InvalidResult || error instanceof NotJson) return new ProgramFailed(error.message, { stage });
  const { transient, evidence } = judge(error, calls);
  const { type, message, traceback } = describeFailure(error, evidence);
  return new ProgramFailed(`${type}: ${message}`, { stage, log_tail: traceback ?? "" }, transient);
}
