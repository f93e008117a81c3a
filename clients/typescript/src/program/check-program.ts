/** Check a program before it is served, and make its seed candidate. */

import { A_FUNCTION, ANYTHING, checkKinds, type Kind, SetupError, TRUE_OR_FALSE } from "../base/configuration.js";
import { describeFailure, invokeProgram } from "../base/failure.js";
import { isObject, shown } from "../base/values.js";
import { ProgramFailed } from "../generated/errors.js";
import { checkSchema } from "../rows/standard-schema.js";
import {
  type BatchProgram,
  type Candidate,
  type FunctionProgram,
  isBatchProgram,
  isScoreProgram,
  type Program,
} from "./program.js";

const FUNCTION_IF_ANY: Kind = [A_FUNCTION[0], "a function, or absent"];

/** The parts of a program; a class may hold them in its prototype. */
export const PROGRAM_PARTS: Record<keyof (FunctionProgram & BatchProgram), Kind> = {
  name: ANYTHING,
  version: ANYTHING,
  deterministic: ANYTHING,
  rowSchema: ANYTHING,
  datasets: ANYTHING,
  seedCandidate: ANYTHING,
  componentDescriptions: ANYTHING,
  run: A_FUNCTION,
  evaluate: A_FUNCTION,
  wholeBatches: TRUE_OR_FALSE,
  score: FUNCTION_IF_ANY,
  readsTrajectory: TRUE_OR_FALSE,
  makeReflectiveDataset: FUNCTION_IF_ANY,
  proposeNewTexts: FUNCTION_IF_ANY,
  finalize: FUNCTION_IF_ANY,
};

/** Throws `SetupError` if the value is not a program. */
export function checkProgram(program: Program): void {
  if (!isObject(program)) throw new SetupError(`the program must be an object, not ${shown(program)}`);
  const { name, seedCandidate } = program;
  if (typeof name !== "string" || name === "") throw new SetupError("the program needs a `name`, a text");
  const scoresOnly = isScoreProgram(program);
  if (!scoresOnly && (isBatchProgram(program) ? program.evaluate : program.run) === undefined) {
    throw new SetupError(
      "the program needs a function: `run(example, candidate)`, or `evaluate(candidate, batch)`" +
        (program.score === undefined ? "" : "; one that only scores has no `seedCandidate` either"),
    );
  }
  checkKinds(program, PROGRAM_PARTS);
  if (program.rowSchema !== undefined) checkSchema("rowSchema", program.rowSchema);
  if (program.readsTrajectory && program.score === undefined) {
    throw new SetupError("`readsTrajectory` is about `score`, which the program does not have");
  }
  const fault = scoresOnly || typeof seedCandidate === "function" ? undefined : faultOfSeed(seedCandidate);
  if (fault !== undefined) throw new SetupError(fault);
}

function faultOfSeed(seed: unknown): string | undefined {
  const meant = '`seedCandidate` must map components to the texts to start from, such as { prompt: "..." }';
  if (!isObject(seed)) return `${meant}; it is ${shown(seed)}`;
  const parts = Object.entries(seed);
  if (parts.length === 0) return `${meant}; it is empty`;
  const wrong = parts.find(([, text]) => typeof text !== "string");
  if (wrong !== undefined) return `${meant}; its \`${wrong[0]}\` is ${shown(wrong[1])}`;
  const half = parts.find(([name, text]) => !(name + text).isWellFormed());
  return half && `\`seedCandidate\`: its \`${half[0]}\` has half of a surrogate pair`;
}

/** Make the seed candidate, empty for a program that only scores. Throws `ProgramFailed` if that fails. */
export async function seedOf(program: Program): Promise<Candidate> {
  if (isScoreProgram(program)) return {};
  const { seedCandidate } = program;
  let seed: unknown;
  try {
    seed = typeof seedCandidate === "function" ? await invokeProgram(seedCandidate) : seedCandidate;
  } catch (error) {
    const { type, message, traceback } = describeFailure(error);
    const details = { stage: "seed_candidate", ...(traceback === undefined ? {} : { log_tail: traceback }) };
    throw new ProgramFailed(`${type}: ${message}`, details);
  }
  const fault = faultOfSeed(seed);
  if (fault !== undefined) throw new ProgramFailed(fault, { stage: "seed_candidate" });
  return { ...(seed as Candidate) };
}
