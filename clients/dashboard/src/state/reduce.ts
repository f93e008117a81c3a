/** The state of a run by its events, in the order of the server: of two with the same key the later one counts. */

import { type Candidate as CandidateEvent, KEYS, type PageEvent, type Results } from "../generated/events";

type Kind = keyof typeof KEYS;

/** `scores`: by place of the validation row, NaN for a missing one. */
export interface Candidate extends Omit<CandidateEvent, "scores"> {
  readonly scores: Float64Array;
}

type EventOf<Name> = Name extends "candidate" ? Candidate : Extract<PageEvent, { event: Name }>;
type Replaced = Exclude<PageEvent["event"], Kind | "results">;
export type Latest = { readonly [Name in Replaced]?: EventOf<Name> };

/** Results of one candidate by place of the row; `numbers` is -1 for a missing one. */
export interface RowResults {
  readonly scores: Float64Array;
  readonly numbers: Int32Array;
}

export interface State {
  readonly latest: Latest;
  readonly kept: { readonly [Name in Kind]: ReadonlyMap<unknown, EventOf<Name>> };
  readonly results: ReadonlyMap<string, RowResults>;
}

export const EMPTY: State = {
  latest: {},
  kept: Object.fromEntries(Object.keys(KEYS).map((kind) => [kind, new Map()])) as unknown as State["kept"],
  results: new Map(),
};

/** Return the state with these events; the given one stays as it is. */
export function reduce(state: State, events: readonly PageEvent[]): State {
  const latest: Record<string, PageEvent> = { ...state.latest };
  const kept = { ...state.kept } as Record<Kind, Map<unknown, unknown>>;
  const changed = new Set<Kind>();
  const results = new Map(state.results);
  const changedResults = new Set<string>();
  for (const event of events) {
    if (event.event === "results") addResults(results, changedResults, event);
    else if (event.event in KEYS) {
      const kind = event.event as Kind;
      if (!changed.has(kind)) kept[kind] = new Map(kept[kind]); // copied before it changes first
      changed.add(kind);
      const key = event[KEYS[kind] as keyof PageEvent];
      kept[kind].set(key, event.event === "candidate" ? { ...event, scores: numbers(event.scores) } : event);
    } else latest[event.event] = event;
  }
  return {
    latest: latest as Latest,
    kept: kept as State["kept"],
    results: changedResults.size > 0 ? results : state.results,
  };
}

/** Add these results; those of a candidate are copied once. */
function addResults(results: Map<string, RowResults>, changed: Set<string>, event: Results): void {
  for (const [at, digest] of event.candidates.entries()) {
    const row = event.rows[at] as number;
    let found = results.get(digest);
    if (found === undefined || row >= found.numbers.length || !changed.has(digest)) {
      found = withRoom(found, row);
      results.set(digest, found);
      changed.add(digest);
    }
    found.scores[row] = event.scores[at] ?? Number.NaN;
    found.numbers[row] = event.numbers[at] as number;
  }
}

/** Return a copy that has room for a row. */
function withRoom(known: RowResults | undefined, row: number): RowResults {
  const length = known?.numbers.length ?? 64;
  const size = row < length ? length : Math.max(row + 1, 2 * length);
  const copy = { scores: new Float64Array(size).fill(Number.NaN), numbers: new Int32Array(size).fill(-1) };
  copy.scores.set(known?.scores ?? []);
  copy.numbers.set(known?.numbers ?? []);
  return copy;
}

function numbers(scores: readonly (number | null)[]): Float64Array {
  const found = new Float64Array(scores.length); // `from` takes twenty times as long
  for (let row = 0; row < scores.length; row += 1) found[row] = scores[row] ?? Number.NaN;
  return found;
}
