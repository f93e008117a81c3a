/** The error of a server on Node that cannot start. */

import { SetupError } from "../base/configuration.js";
import { ProgramFailed } from "../generated/errors.js";

/**
 * Convert an error for the caller of `entry`. The stack of a caller's mistake begins at the caller's line: the frames of
 * this package would not help.
 */
export function asSetupError(error: unknown, entry: (...given: never[]) => unknown): unknown {
  const failure = error instanceof ProgramFailed ? new SetupError(reasonOf(error)) : error;
  if (failure instanceof SetupError) Error.captureStackTrace(failure, entry);
  return failure;
}

/** Why there is no seed candidate; with the program's own frames if its function threw. */
function reasonOf({ message, details }: ProgramFailed): string {
  return details.log_tail === undefined ? message : `\`seedCandidate\` failed: ${details.log_tail}`;
}
