/** The run at a place of its journal: what `evolverpc replay --until N` shows, or with `LIVE` all that is known. */

import type { Budget, Mutation, Proposal, Steer, StepFailed, Summary } from "../generated/events";
import type { Candidate, Latest, State } from "./reduce";

export const LIVE = Number.POSITIVE_INFINITY;

/** Results of a candidate that is not in the pool yet, or never was. */
export interface Partial {
  readonly digest: string;
  readonly scores: Float64Array;
  readonly count: number;
}

export interface View {
  readonly at: number;
  readonly latest: Latest;
  /** Ids of the validation rows; null where the id has not arrived. */
  readonly rows: readonly (string | null)[];
  /** The beginnings of their contents; empty for none. */
  readonly labels: readonly string[];
  /** No validation rows were given: these are the training rows. */
  readonly onTraining: boolean;
  /** In order of their indices. */
  readonly candidates: readonly Candidate[];
  readonly partial: readonly Partial[];
  readonly front: ReadonlySet<number>;
  /** The index of the best candidate. */
  readonly best: number | null;
  /** What the run came to; undefined while it is driven, and at an earlier entry. */
  readonly summary: Summary | undefined;
  readonly metricCalls: number;
  /** Counts of metric calls by place, in order. */
  readonly metricCallCounts: readonly Budget[];
  /** In the order in which they began; one decided later is pending. */
  readonly proposals: readonly Proposal[];
  readonly mutations: readonly Mutation[];
  readonly steers: readonly Steer[];
  readonly failedSteps: readonly StepFailed[];
}

/** Return the state of all facts with `at` <= `n`. */
export function viewAt(state: State, n: number): View {
  const live = n === LIVE;
  const { latest, kept } = state;
  const isOver = latest.position?.complete === true && n >= latest.position.end;
  const until = <Fact extends { readonly at: number | null }>(facts: ReadonlyMap<unknown, Fact>) =>
    derived(facts, n, () => [...facts.values()].filter((fact) => placeOf(fact) <= n).sort(by(placeOf)));
  const candidates = derived(kept.candidate, n, () =>
    [...kept.candidate.values()].filter(({ at }) => at <= n).sort((a, b) => a.index - b.index),
  );
  const proposals = derived(kept.proposal, `${n} ${isOver}`, () =>
    [...kept.proposal.values()]
      .filter(({ at }) => at <= n)
      .sort((a, b) => a.at - b.at || (a.key < b.key ? -1 : 1))
      .map((proposal) => asOf(proposal, n, isOver)),
  );
  const pool = [...candidates, ...until(kept.steered).filter(({ best }) => best !== null)].sort(by(placeOf)).at(-1);
  const metricCallCounts = until(kept.budget);
  const summary = live && !latest.run?.driven ? latest.summary : undefined;
  return {
    at: n,
    latest,
    ...derived(kept.rows, n, () => rowNames(kept.rows)),
    onTraining: [...kept.rows.values()].some(({ training }) => training),
    candidates,
    partial: partialResults(state, new Set(candidates.map(({ digest }) => digest)), n),
    front: pool === undefined ? new Set() : derived(pool, n, () => new Set(pool.front)),
    best: summary?.best ?? pool?.best ?? null,
    summary,
    metricCalls: Math.max(
      metricCallCounts.at(-1)?.metric_calls ?? 0,
      candidates.at(-1)?.metric_calls ?? 0,
      (live ? latest.now?.metric_calls : 0) ?? 0,
    ),
    metricCallCounts,
    proposals,
    mutations: until(kept.mutation),
    steers: [...kept.steer.values()]
      .filter(({ at }) => live || (at !== null && at <= n))
      .sort(by(({ requested, key }) => `${requested} ${key}`)),
    failedSteps: until(kept.failure),
  };
}

function placeOf({ at }: { readonly at: number | null }): number {
  return at ?? 0;
}

/** Return the order by a value of each. */
function by<Item>(value: (item: Item) => number | string): (a: Item, b: Item) => number {
  return (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
}

const lastDerived = new WeakMap<object, { readonly n: number | string; readonly value: unknown }>();

/**
 * Return what follows from a collection at a place, the same object as last time if neither has changed: a view of a
 * thousand candidates is drawn again only if they did.
 */
function derived<Value>(source: object, n: number | string, make: () => Value): Value {
  const last = lastDerived.get(source);
  if (last?.n === n) return last.value as Value;
  const value = make();
  lastDerived.set(source, { n, value });
  return value;
}

function asOf(proposal: Proposal, n: number, isOver: boolean): Proposal {
  if (proposal.decided === null) return isOver ? { ...proposal, outcome: "unfinished" } : { ...proposal, why: null };
  if (proposal.decided <= n) return proposal;
  return { ...proposal, decided: null, outcome: "pending", after: null, why: null, candidate: null };
}

function rowNames(known: State["kept"]["rows"]): Pick<View, "rows" | "labels"> {
  const parts = [...known.values()];
  const total = Math.max(0, ...parts.map((part) => part.total));
  const rows = new Array<string | null>(total).fill(null);
  const named = new Array<string>(total).fill("");
  for (const { start, ids, labels } of parts) {
    for (const [at, id] of ids.entries()) rows[start + at] = id;
    for (const [at, label] of labels.entries()) named[start + at] = label;
  }
  return { rows, labels: named };
}

/** A result counts from the place after its entry on. */
function partialResults(state: State, pool: ReadonlySet<string>, n: number): Partial[] {
  const found: Partial[] = [];
  for (const [digest, results] of state.results) {
    if (pool.has(digest)) continue;
    const scores = results.scores.map((score, row) => ((results.numbers[row] as number) < n ? score : Number.NaN));
    const count = results.numbers.reduce((sum, number) => sum + (number >= 0 && number < n ? 1 : 0), 0);
    if (count > 0) found.push({ digest, scores, count });
  }
  return found.sort(by(({ digest }) => digest));
}
