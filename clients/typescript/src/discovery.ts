/** What `discover` says of a program, and the seed candidate it is made from. */

import type { Carrier } from "./carriers.js";
import { ProgramFailed } from "./errors.js";
import { describeFailure } from "./failure.js";
import { PROTOCOL_VERSION } from "./generated/contract.js";
import type { DiscoverResult } from "./generated/types.js";
import { isObject } from "./json.js";
import type { Settings } from "./options.js";
import { type Candidate, isBatchProgram, type Program, takesWholeBatches } from "./program.js";
import type { Rows } from "./rows.js";
import { PACKAGE_VERSION } from "./version.js";

/** Throws a `TypeError` for what is no program, before anything is served. */
export function checkProgram(program: Program): void {
  if (!isObject(program)) throw new TypeError("a program is an object of functions");
  if (typeof program.name !== "string" || program.name === "") throw new TypeError("the program needs a `name`");
  const body = isBatchProgram(program) ? program.evaluate : program.run;
  if (typeof body !== "function") throw new TypeError("the program needs a function `run` or `evaluate`");
  if (program.seedCandidate === undefined) throw new TypeError("the program needs a `seedCandidate`");
}

/** The candidate to start from; throws `ProgramFailed` where it cannot be had. */
export async function seedOf({ seedCandidate }: Program): Promise<Candidate> {
  let seed: unknown;
  try {
    seed = typeof seedCandidate === "function" ? await seedCandidate() : seedCandidate;
  } catch (error) {
    const { type, message, traceback } = describeFailure(error);
    throw new ProgramFailed(`${type}: ${message}`, { stage: "seed_candidate", log_tail: traceback ?? "" });
  }
  const texts = isObject(seed) ? Object.values(seed) : [];
  if (texts.length === 0 || texts.some((text) => typeof text !== "string")) {
    throw new ProgramFailed("seedCandidate must map at least one component to its text", { stage: "seed_candidate" });
  }
  return { ...(seed as Candidate) };
}

/** The answer to `discover`, the same for the life of an instance. */
export async function discoveryOf(
  program: Program,
  seed: Candidate,
  rows: Rows,
  settings: Settings,
  carrier: Carrier,
): Promise<DiscoverResult> {
  const capabilities = [...carrier.offers, ...offersOf(program), ...(rows.held ? ["datasets"] : []), "openrpc"];
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
      components: Object.keys(seed).map((name) => {
        const description = program.componentDescriptions?.[name];
        return { name, kind: "text", ...(description === undefined ? {} : { description }) };
      }),
      seed_candidate: seed,
    },
    datasets: await rows.describe(),
    capabilities,
    limits: {
      max_concurrency: settings.maxConcurrency,
      max_batch_size: settings.maxBatchSize,
      max_request_bytes: settings.maxRequestBytes,
      ...(settings.exampleTimeoutS === undefined ? {} : { example_timeout_s: settings.exampleTimeoutS }),
      ...(capabilities.includes("batch") ? { max_batch_entries: settings.maxBatchEntries } : {}),
      ...(takesWholeBatches(program) ? { whole_batches: true } : {}),
      ...carrier.limits,
    },
  };
}

function offersOf(program: Program): string[] {
  return [
    ...(program.proposeNewTexts ? ["proposals"] : []),
    ...(program.score ? ["scoring"] : []),
    ...(program.finalize ? ["finalize"] : []),
  ];
}
