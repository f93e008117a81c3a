/** The result of a run, read from its folder. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Finished } from "../generated/optimize.js";
import type { Candidate } from "../program/program.js";
import type { Summary } from "./optimizer-process.js";

/** A candidate that a run kept; the first one is the seed. */
export interface KeptCandidate<Component extends string = string> {
  texts: Candidate<Component>;
  /** The mean score on the validation rows. */
  score: number;
  /** The score on each validation row, by the row's id. */
  valScores: Record<string, number>;
  /** The positions of the candidates it was made from. */
  parents: number[];
}

/** What a run found. Scores are means over the rows. */
export interface OptimizeResult<Component extends string = string> {
  runId: string;
  /** `completed`; another one, such as `paused`, in an `OptimizeError`. */
  status: Finished["status"];
  /** What ended the run. */
  reason: string | undefined;
  bestCandidate: Candidate<Component>;
  /** On the validation rows. */
  bestScore: number;
  seedScore: number;
  /** Of the best candidate and of the seed, on the test rows; undefined if there are none. */
  testScore: number | undefined;
  seedTestScore: number | undefined;
  /** Whether the test rows show a gain, by the run's certificate; undefined if there is none. */
  verdict: Verdict | undefined;
  /** All that were kept, in the order in which they were found. */
  candidates: KeptCandidate<Component>[];
  metricCalls: number;
  /** What is known to be spent. */
  spentUsd: number;
  /** Of work. */
  seconds: number;
  /** The folder of the run, and the files in it. */
  output: string;
  files: { bestCandidate: string; result: string; report: string; events: string; log: string };
}

/** What a certificate states about the best candidate against the seed; `evolverpc verify` checks it. */
export type Verdict = "improved" | "no difference" | "worse";

interface Written {
  candidates: Candidate[];
  parents: (number | null)[][];
  val_aggregate_scores: number[];
  val_subscores: Record<string, number>[];
  val_rows: Record<string, string>;
  test_scores: Record<string, number>;
  best_idx: number;
  best_score: number;
  seed_score: number;
  total_metric_calls: number;
}

/** Return the result in the folder of a run; undefined if the run ended before its seed was scored. */
export function readResult(summary: Summary & { output: string }): OptimizeResult | undefined {
  const { output } = summary;
  const path = (name: string): string => join(output, name);
  const found = read<Written>(path("result.json"));
  if (found === undefined) return undefined;
  const best = found.best_idx;
  const candidates = found.candidates.map((texts, at) => ({
    texts,
    score: found.val_aggregate_scores[at] as number,
    valScores: byRow(found.val_subscores[at] ?? {}, found.val_rows),
    parents: (found.parents[at] ?? []).filter((parent) => parent !== null),
  }));
  return {
    runId: summary.run_id,
    status: summary.status,
    reason: summary.reason ?? undefined,
    bestCandidate: found.candidates[best] as Candidate,
    bestScore: found.best_score,
    seedScore: found.seed_score,
    testScore: found.test_scores[best],
    seedTestScore: found.test_scores[0],
    verdict: read<{ verdict: Verdict }>(path("certificate.json"))?.verdict,
    candidates,
    metricCalls: found.total_metric_calls,
    spentUsd: summary.spent_usd,
    seconds: summary.active_seconds,
    output,
    files: {
      bestCandidate: path("best_candidate.json"),
      result: path("result.json"),
      report: path("report.html"),
      events: path("events.jsonl"),
      log: path("run.log"),
    },
  };
}

function read<Content>(path: string): Content | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function byRow(scores: Record<string, number>, rows: Record<string, string>): Record<string, number> {
  return Object.fromEntries(Object.entries(scores).map(([id, score]) => [rows[id] ?? id, score]));
}
