/** How a server on Node that cannot start says so. */

import { ProgramFailed } from "./errors.js";
import { SetupError } from "./setup.js";

/**
 * The error to leave `entry` with. A mistake of the caller's is told from the caller's line on: the frames of this
 * package would say nothing about it.
 */
export function setupFailure(error: unknown, entry: (...given: never[]) => unknown): unknown {
  const said = error instanceof ProgramFailed ? new SetupError(reasonOf(error)) : error;
  if (said instanceof SetupError) Error.captureStackTrace(said, entry);
  return said;
}

/** Why there is no seed candidate; where its function threw, with the program's own frames. */
function reasonOf({ message, details }: ProgramFailed): string {
  return details.log_tail === undefined ? message : `\`seedCandidate\` failed: ${details.log_tail}`;
}
