/** Why a server did not carry something out. */

import { Inline } from "./text";

/** `status`: 0 if there was no answer. `errors`: by field of the request. */
export interface Problem {
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly errors: readonly { readonly field: string; readonly message: string }[];
}

/** The messages for a field of a request, and for the fields in it. */
export function messagesFor(problem: Problem | null, field: string): readonly string[] {
  return (problem?.errors ?? [])
    .filter((error) => error.field === field || error.field.startsWith(`${field}.`))
    .map((error) => (error.field === field ? error.message : `${error.field}: ${error.message}`));
}

export function ProblemNotice({ problem }: { problem: Problem | null }) {
  if (problem === null) return null;
  return (
    <p class="notices bad" role="alert">
      <Inline as="strong" text={problem.title} />: <Inline text={problem.detail} length={1_000} />
    </p>
  );
}
