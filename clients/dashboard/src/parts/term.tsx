/** Words that the page explains where they stand, for a pointer that rests on them, and in a list for all readers. */

import { Facts } from "./facts";

const TERMS = {
  certificate:
    "states whether the best candidate is better than the seed on test rows that the search never used, with the numbers it rests on",
  "Pareto front": "the candidates that no other candidate beats on every row",
  sealed: "test rows that the run committed to before its first iteration, and scores once, after the search",
  "metric calls":
    "examples evaluated during the search, each time anew; the budget counts these. Evaluations of test rows and of a batch that is not complete are no metric calls, so that more examples may be evaluated than there are metric calls",
} as const;

export type Explained = keyof typeof TERMS;

export function Term({ of, children }: { of: Explained; children?: string }) {
  return (
    <abbr class="term" title={TERMS[of]}>
      {children ?? of}
    </abbr>
  );
}

export function Terms() {
  return (
    <details>
      <summary>Words of this page</summary>
      <Facts facts={Object.entries(TERMS).map(([name, text]) => [name, `${text}.`])} />
    </details>
  );
}
