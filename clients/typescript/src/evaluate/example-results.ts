/** Build an `ExampleResult` of the contract from what a program returned or threw. */

import { describeFailure, finite, InvalidResult } from "../base/failure.js";
import { type JsonValue, NotJson, toExactJson, toJsonValue, wellFormed } from "../base/json.js";
import { jsonOrRepr } from "../base/json-or-repr.js";
import { faults } from "../base/validate.js";
import { isObject, shown } from "../base/values.js";
import type { ExampleError, ExampleResult, Usage } from "../generated/types.js";
import { PARSE_FAILURE, ParseFailure } from "../steps/steps.js";
import type { Call, ExampleCalls } from "../wire/example-calls.js";
import { judge } from "../wire/infrastructure-failures.js";
import type { Outcome } from "./deadline.js";
import { withLog, writtenBy } from "./example-log.js";

/** A score in the form of the contract. */
interface ReadScore extends Pick<ExampleResult, "feedback" | "objective_scores" | "component_feedback"> {
  score: number;
}

const SCORE_KEYS = ["score", "feedback", "objective_scores", "component_feedback"];

/**
 * A number, `[number, feedback]` or `{score, feedback?, objective_scores?, component_feedback?}`; throws `InvalidResult`
 * for all else.
 */
export function readScore(given: unknown): ReadScore {
  if (Array.isArray(given)) {
    return readScore(Object.fromEntries(given.map((part, at) => [SCORE_KEYS[at] ?? at, part])));
  }
  if (!isObject(given)) return { score: finite(given, "the score") };
  const unknown = Object.keys(given).find((key) => !SCORE_KEYS.includes(key));
  if (unknown !== undefined) throw new InvalidResult(`a score has ${SCORE_KEYS.join(", ")}, and no ${unknown}`);
  const { score, feedback, objective_scores: objectives, component_feedback: byComponent } = given;
  const read: ReadScore = { score: finite(score, "the score") };
  if (feedback !== undefined && feedback !== null) {
    if (typeof feedback !== "string") throw new InvalidResult(`the feedback must be a string, not ${shown(feedback)}`);
    read.feedback = wellFormed(feedback);
  }
  if (objectives !== undefined && objectives !== null) {
    if (!isObject(objectives)) throw new InvalidResult(`objective_scores must be an object, not ${shown(objectives)}`);
    const scores = Object.entries(objectives).map(([name, value]) => [
      wellFormed(name),
      finite(value, `objective ${name}`),
    ]);
    read.objective_scores = Object.fromEntries(scores);
  }
  if (byComponent !== undefined && byComponent !== null) {
    const texts = readComponentFeedback(byComponent);
    if (Object.keys(texts).length > 0) read.component_feedback = texts;
  }
  return read;
}

/** What is reported of an attempt, whether it succeeded or failed. */
export interface Attempt {
  seconds: number;
  /** What the program returned, if it did. */
  output?: JsonValue;
  usage?: unknown;
  trajectory?: JsonValue | undefined;
  /** What is known of its calls over the network. */
  calls: ExampleCalls;
}

/** The result of an example that threw. */
export function failedResult(error: unknown, attempt: Attempt): ExampleResult {
  const { transient, evidence } = judge(error, attempt.calls);
  if (!transient && (error instanceof InvalidResult || error instanceof NotJson)) {
    return unscored("program_error", { type: "invalid_result", message: wellFormed(error.message) }, attempt);
  }
  const described = describeFailure(error, evidence);
  if (error instanceof ParseFailure) described.type = PARSE_FAILURE;
  return unscored(transient ? "infra_error" : "program_error", described, attempt);
}

/** The result of an example whose program returned an output although its last call of a model failed. */
export function withoutModelResult(call: Call, attempt: Attempt): ExampleResult {
  const message = `the last call of a model failed: ${call}; the option trustResults takes what the program returned`;
  return unscored("infra_error", { type: "model_unavailable", message: wellFormed(message) }, attempt);
}

/** The result of an example that threw, was cancelled, or ran past its deadline. */
export function unfinishedResult(
  ending: Exclude<Outcome<unknown>, { kind: "done" }>,
  timeoutS: number,
  attempt: Attempt,
): ExampleResult {
  if (ending.kind === "cancelled") return cancelledResult(attempt);
  if (ending.kind === "failed") return failedResult(ending.error, attempt);
  const message = `ran longer than ${timeoutS} s ${ending.fault}`;
  const { openModelCall: call } = attempt.calls;
  if (call === undefined) return unscored("timeout", { type: "timeout", message }, attempt);
  return unscored("infra_error", { type: "timeout", message: wellFormed(`${message} [${call}]`) }, attempt);
}

/** The result of an example that was stopped, with its cost until then, or that was never started. */
export function cancelledResult({ trajectory: _, ...attempt }: Attempt): ExampleResult {
  return { status: "cancelled", score: null, output: null, ...extras(attempt) };
}

function unscored(status: ExampleResult["status"], error: ExampleError, attempt: Attempt): ExampleResult {
  return { status, score: null, output: attempt.output ?? null, error, ...extras(attempt) };
}

/** The optional parts of a result. */
function extras({
  seconds,
  usage,
  trajectory,
  calls: { hosts },
}: Attempt): Pick<ExampleResult, "seconds" | "usage" | "trajectory" | "hosts"> {
  const spent = readUsage(usage);
  return {
    ...(trajectory === undefined ? {} : { trajectory }),
    ...(spent === undefined ? {} : { usage: spent }),
    ...(hosts === undefined ? {} : { hosts }),
    seconds,
  };
}

/** The usage a program noted; undefined where it noted none, or none that makes sense. */
function readUsage(noted: unknown): Usage | undefined {
  if (!isObject(noted) || Object.keys(noted).length === 0) return undefined;
  const usage = jsonOrRepr(noted);
  return faults("Usage", usage).length === 0 ? (usage as Usage) : undefined;
}

/** The result of an example that finished; a `rollout` if it has no score. */
export function finishedResult(score: ReadScore | undefined, attempt: Attempt): ExampleResult {
  return {
    status: score === undefined ? "rollout" : "ok",
    ...(score ?? { score: null }),
    output: attempt.output ?? null,
    ...extras(attempt),
  };
}

/** The result itself, or the failure that stands for one of more than `most` bytes as JSON. */
export function withinBytes(result: ExampleResult, most: number): ExampleResult {
  const whole = bytesOfJson(result, most);
  if (whole <= most) return result;
  const failure = { ...result, output: null };
  if (result.status !== "ok" && result.status !== "rollout" && bytesOfJson(failure, most) <= most) return failure;
  const output = bytesOfJson(result.output, most);
  const size = output > most ? output : whole;
  const error = { type: "output_too_large", message: `output of ${size} bytes, more than ${most} accepted` };
  const { trajectory: _trajectory, feedback: _feedback, objective_scores: _objectives, ...rest } = result;
  const { component_feedback: _byComponent, log: _log, ...kept } = rest;
  const log = writtenBy(result);
  return withLog({ ...kept, status: "program_error", score: null, output: null, error }, log.length <= most ? log : "");
}

/** The length of a value as JSON in UTF-8; `most` + 1 if it is longer than a string can be. */
function bytesOfJson(value: unknown, most: number): number {
  try {
    return new TextEncoder().encode(JSON.stringify(value)).length;
  } catch (error) {
    if (error instanceof RangeError) return most + 1;
    throw error;
  }
}

/** The fields of a scored result that describe the scoring; all others stay unchanged. */
const SCORINGS_OWN = [
  "status",
  "score",
  "feedback",
  "component_feedback",
  "objective_scores",
  "error",
  "usage",
  "seconds",
];

/** A result combined with the outcome of its scoring. */
export function rescored(result: ExampleResult, scoring: ExampleResult): ExampleResult {
  const kept = Object.entries(result).filter(([name]) => !SCORINGS_OWN.includes(name));
  const hosts = { ...result.hosts, ...scoring.hosts };
  const combined = { ...scoring, ...Object.fromEntries(kept), ...(Object.keys(hosts).length > 0 ? { hosts } : {}) };
  return withLog(combined, writtenBy(result) + writtenBy(scoring));
}

/** One result of a program's own `evaluate`; throws `InvalidResult` or `NotJson`. */
export function readBatchResult(
  given: unknown,
  { seconds, calls: { hosts } }: Attempt,
  captureTraces: boolean,
): ExampleResult {
  const seen = hosts === undefined ? {} : { hosts };
  if (!isObject(given)) return { status: "ok", ...readScore(given), output: null, ...seen, seconds };
  const {
    status = "ok",
    output,
    error,
    trajectory,
    usage,
    metric_calls,
    seconds: measured = seconds,
    ...scored
  } = given;
  const result = {
    status,
    ...(status === "ok" ? readScore(scored) : { ...scored, score: null }),
    output: toExactJson(output, "output"),
    ...(error === undefined ? {} : { error: toJsonValue(error, "error") }),
    ...(captureTraces && trajectory !== undefined ? { trajectory: toJsonValue(trajectory, "trajectory") } : {}),
    ...(usage === undefined ? {} : { usage: toJsonValue(usage, "usage") }),
    ...(metric_calls === undefined ? {} : { metric_calls }),
    ...seen,
    seconds: measured,
  };
  const [fault] = faults("ExampleResult", result);
  if (fault !== undefined) throw new InvalidResult(`${fault.path}: ${fault.message}`);
  return result as unknown as ExampleResult;
}

/** Return the texts by component, each given as text or as `{feedback, score?}`; throws `InvalidResult` for all else. */
function readComponentFeedback(given: unknown): Record<string, string> {
  if (!isObject(given)) throw new InvalidResult(`component_feedback must be an object, not ${shown(given)}`);
  const texts = Object.entries(given).map(([name, feedback]) => {
    if (typeof feedback === "string") return [wellFormed(name), wellFormed(feedback)];
    const { feedback: text, score: own, ...others } = isObject(feedback) ? feedback : {};
    if (typeof text !== "string" || Object.keys(others).length > 0) {
      throw new InvalidResult(
        `component_feedback.${name} must be a text or {feedback, score?}, not ${shown(feedback)}; its feedback is a text`,
      );
    }
    if (own !== undefined && own !== null) finite(own, `component_feedback.${name}.score`);
    return [wellFormed(name), wellFormed(text)];
  });
  return Object.fromEntries(texts);
}
