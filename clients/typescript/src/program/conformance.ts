/** The conformance program: each example specifies what the program does. */

import { isObject } from "../base/values.js";
import type { ExampleResult, ImageContent, Step } from "../generated/types.js";
import { Image } from "./images.js";
import type { ComponentFeedback, FunctionProgram, ReflectiveDataset, RunContext, Score } from "./program.js";

/** A step to run, as the contract describes it. */
interface ConformanceStep extends Pick<Step, "component" | "name"> {
  inputs?: object;
  outputs: unknown;
  raise?: string;
  parse_failure?: { raw: string; expected: string; message: string };
  steps?: ConformanceStep[];
}

/** The fields of an example, as the contract describes them. */
export interface ConformanceExample {
  sleep_ms?: number;
  print?: string;
  raise?: string;
  infra_error?: string;
  echo_candidate?: boolean;
  output?: unknown;
  score?: unknown;
  score_steps?: boolean;
  feedback?: string;
  objective_scores?: Record<string, unknown>;
  component_feedback?: ComponentFeedback;
  steps?: ConformanceStep[];
  trace_bytes?: number;
  image?: ImageContent;
}

/** Seconds, recommended for a server that is to be checked: long enough for its examples, short enough to wait for. */
export const CONFORMANCE_LIMITS = { exampleTimeoutS: 4, abandonAfterS: 2, keepAnswersS: 3 };

const NOT_FINITE: Record<string, number> = { NaN: Number.NaN, Infinity: Number.POSITIVE_INFINITY };

export const conformanceProgram = {
  name: "conformance",
  version: "1",
  deterministic: true,
  seedCandidate: { system: "seed system", style: "seed style" },
  datasets: { train: rows(5), val: rows(3) },
  readsTrajectory: true,

  async run(data, candidate, context): Promise<unknown> {
    if (data.sleep_ms) await new Promise((resolve) => setTimeout(resolve, data.sleep_ms));
    if (data.print !== undefined) console.log(data.print);
    context.trace.push({ ...candidate, data, pad: "x".repeat(data.trace_bytes ?? 0) });
    await runSteps(data.steps ?? [], context);
    if (data.raise !== undefined) throw new Error(data.raise);
    if (data.infra_error !== undefined) throw Object.assign(new Error(data.infra_error), { retryable: true });
    return data.echo_candidate ? candidate : data.output;
  },

  score({ score_steps, score: given = 1, feedback, objective_scores, component_feedback }, _output, context): Score {
    const objectives = Object.entries(objective_scores ?? {}).map(([name, value]) => [name, numberOf(value)] as const);
    return {
      // Also values that are no numbers: the server must reject them.
      score: score_steps ? numberOfSteps(context.trajectory) : numberOf(given),
      ...(feedback === undefined ? {} : { feedback }),
      ...(objective_scores === undefined ? {} : { objective_scores: Object.fromEntries(objectives) }),
      ...(component_feedback === undefined ? {} : { component_feedback }),
    };
  },

  makeReflectiveDataset(_candidate, { batch, results }, componentsToUpdate): ReflectiveDataset {
    const records = results.map((result, at) => recordOf(batch[at]?.data as ConformanceExample, result));
    return Object.fromEntries(componentsToUpdate.map((name) => [name, records]));
  },

  proposeNewTexts(candidate, _reflectiveDataset, componentsToUpdate): Record<string, string> {
    return Object.fromEntries(componentsToUpdate.map((name) => [name, `${candidate[name]}!`]));
  },

  finalize(): string {
    return "done";
  },
} satisfies FunctionProgram<ConformanceExample>;

/** A record of an example, which shows its image if it has one. */
function recordOf(data: ConformanceExample, { output, score, feedback, error, trajectory }: ExampleResult) {
  const failure = error ? `The program failed: ${error.type}: ${error.message}` : undefined;
  return {
    Inputs: data,
    "Generated Outputs": output,
    Feedback: failure ?? feedback ?? `Score: ${score}`,
    ...(data.image === undefined ? {} : { Image: new Image(data.image.base64, data.image.media_type) }),
    ...(trajectory === undefined ? {} : { Trace: trajectory }),
  };
}

function numberOf(given: unknown): number {
  return (typeof given === "string" ? (NOT_FINITE[given] ?? given) : given) as number;
}

function numberOfSteps(trajectory: unknown): number {
  return isObject(trajectory) ? (trajectory.steps as unknown[]).length : 0;
}

async function runSteps(wanted: readonly ConformanceStep[], context: RunContext): Promise<void> {
  for (const { component = null, name = null, inputs = {}, steps = [], outputs, raise, parse_failure } of wanted) {
    const running = context.step({ component, name }, inputs, async () => {
      await runSteps(steps, context);
      if (raise !== undefined) throw new Error(raise);
      if (parse_failure !== undefined) {
        context.parseFailure(parse_failure.raw, parse_failure.expected, parse_failure.message);
      }
      return outputs;
    });
    await running.catch((error: unknown) => {
      if (parse_failure === undefined) throw error;
    });
  }
}

function rows(count: number): ConformanceExample[] {
  return Array.from({ length: count }, (_, row) => ({ score: row / 10 }));
}
