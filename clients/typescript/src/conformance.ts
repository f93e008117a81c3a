/** The conformance program: each example specifies what the program does. */

import type { FunctionProgram, Score } from "./program.js";

/** The fields of an example. */
export interface ConformanceExample {
  /** Wait this many milliseconds first. */
  sleep_ms?: number;
  /** Fail with this message. */
  raise?: string;
  /** Answer the candidate in place of `output`. */
  echo_candidate?: boolean;
  output?: unknown;
  /** The score to give, 1 when absent; the strings "NaN" and "Infinity" mean those numbers. */
  score?: unknown;
  feedback?: string;
  objective_scores?: Record<string, number>;
  /** How much the trajectory is padded. */
  trace_bytes?: number;
}

const NOT_FINITE: Record<string, number> = { NaN: Number.NaN, Infinity: Number.POSITIVE_INFINITY };

export const conformanceProgram = {
  name: "conformance",
  version: "1",
  seedCandidate: { system: "seed system", style: "seed style" },
  datasets: { train: rows(5), val: rows(3) },

  async run(data, candidate, { signal, trace }): Promise<unknown> {
    await asleep(data.sleep_ms ?? 0, signal);
    trace.push({ ...candidate, data, pad: "x".repeat(data.trace_bytes ?? 0) });
    if (data.raise !== undefined) throw new Error(data.raise);
    return data.echo_candidate ? candidate : data.output;
  },

  score({ score = 1, feedback, objective_scores }): Score {
    return {
      // Also values that are no numbers: the server must reject them.
      score: (typeof score === "string" ? (NOT_FINITE[score] ?? score) : score) as number,
      ...(feedback === undefined ? {} : { feedback }),
      ...(objective_scores === undefined ? {} : { objective_scores }),
    };
  },

  proposeNewTexts(candidate, _reflectiveDataset, componentsToUpdate): Record<string, string> {
    return Object.fromEntries(componentsToUpdate.map((name) => [name, `${candidate[name]}!`]));
  },

  finalize(): string {
    return "done";
  },
} satisfies FunctionProgram<ConformanceExample>;

function asleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  if (milliseconds === 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

function rows(count: number): ConformanceExample[] {
  return Array.from({ length: count }, (_, row) => ({ score: row / 10 }));
}
