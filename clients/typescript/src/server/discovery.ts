/** The result of `discover` for a program. */

import { PACKAGE_VERSION } from "../base/version.js";
import { PROTOCOL_VERSION } from "../generated/contract.js";
import type { DiscoverResult } from "../generated/types.js";
import { type Candidate, isScoreProgram, type Program, takesWholeBatches } from "../program/program.js";
import type { Rows } from "../rows/rows.js";
import type { Settings } from "./options.js";
import type { Transport } from "./store.js";

/** Build the result of `discover`, which stays the same for the life of an instance. */
export async function discoveryOf(
  program: Program,
  seed: Candidate,
  rows: Rows,
  settings: Settings,
  transport: Transport,
): Promise<DiscoverResult> {
  const capabilities = [
    ...transport.offers,
    ...offersOf(program),
    ...(rows.held ? ["datasets"] : []),
    "exact_values",
    "openrpc",
  ];
  return {
    protocol_versions: [PROTOCOL_VERSION],
    server: {
      name: "evolverpc",
      version: PACKAGE_VERSION,
      language: "typescript",
      instance_id: crypto.randomUUID(),
    },
    program: {
      name: program.name,
      ...(program.version === undefined ? {} : { version: program.version }),
      ...(program.deterministic === undefined ? {} : { deterministic: program.deterministic }),
      ...(settings.digest === undefined ? {} : { digest: settings.digest }),
      components: Object.keys(seed).map((name) => {
        const description = program.componentDescriptions?.[name];
        return { name, kind: "text", ...(description === undefined ? {} : { description }) };
      }),
      seed_candidate: seed,
    },
    datasets: await rows.describe(),
    capabilities,
    limits: {
      max_concurrency: settings.concurrency,
      max_batch_size: settings.maxBatchSize,
      max_request_bytes: settings.maxRequestBytes,
      max_result_bytes: settings.maxResultBytes,
      ...(settings.exampleTimeoutS === undefined ? {} : { example_timeout_s: settings.exampleTimeoutS }),
      ...(capabilities.includes("batch") ? { max_batch_entries: settings.maxBatchEntries } : {}),
      ...(takesWholeBatches(program) ? { whole_batches: true } : {}),
      ...transport.limits,
    },
  };
}

function offersOf(program: Program): string[] {
  return [
    ...(program.proposeNewTexts ? ["proposals"] : []),
    ...(program.score ? ["scoring"] : []),
    ...(program.readsTrajectory ? ["score_trajectories"] : []),
    ...(isScoreProgram(program) ? [] : ["steps"]),
    ...(program.finalize ? ["finalize"] : []),
    ...(program.makeReflectiveDataset ? ["reflective_datasets", "images"] : []),
  ];
}
