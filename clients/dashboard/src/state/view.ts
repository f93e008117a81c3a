/** The run at a place of its journal: what `evolverpc replay --until N` shows, or with `LIVE` all that is known. */

import type { Budget, Mutation, NoProposal, Proposal, Steer, Tested, TiesCompared, Warned } from "../generated/events";
import type { Candidate, Latest, Placed, State } from "./reduce";

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
  /** No validation rows were given: these are the training rows. */
  readonly onTraining: boolean;
  /** In order of their indices. */
  readonly candidates: readonly Candidate[];
  readonly partial: readonly Partial[];
  readonly front: ReadonlySet<number>;
  /** The index of the best candidate. */
  readonly best: number | null;
  /** How the best candidates of the pool were compared; undefined if they were not, and at an earlier entry. */
  readonly ties: TiesCompared | undefined;
  readonly metricCalls: number;
  /** Counts of metric calls by place, in order. */
  readonly metricCallCounts: readonly Placed<Budget>[];
  readonly tested: readonly Tested[];
  /** In the order in which they began; one decided later is pending. */
  readonly proposals: readonly Proposal[];
  readonly iterations: readonly Placed<NoProposal>[];
  readonly mutations: readonly Mutation[];
  readonly steers: readonly Steer[];
  readonly warnings: readonly Warned[];
}

/** Return the state of all facts with `at` <= `n`. */
export function viewAt(state: State, n: number): View {
  const live = n === LIVE;
  const { position } = state.latest;
  const isOver = position?.complete === true && n >= position.end;
  const until = <Fact extends { readonly at: number }>(facts: ReadonlyMap<unknown, Fact>) =>
    derived(facts, n, () => [...facts.values()].filter((fact) => fact.at <= n).sort((a, b) => a.at - b.at));
  const candidates = derived(state.candidates, n, () =>
    [...state.candidates.values()].filter(({ at }) => at <= n).sort((a, b) => a.index - b.index),
  );
  const proposals = derived(state.proposals, `${n} ${isOver}`, () =>
    [...state.proposals.values()]
      .filter(({ at }) => at <= n)
      .sort((a, b) => a.at - b.at || (a.key < b.key ? -1 : 1))
      .map((proposal) => asOf(proposal, n, isOver)),
  );
  const pool = last(until(state.pools));
  const metricCallCounts = until(state.metricCalls);
  const ties = live ? tiesOf(state) : undefined;
  return {
    at: n,
    latest: state.latest,
    rows: derived(state.rows, n, () => rowIds(state)),
    onTraining: [...state.rows.values()].some(({ training }) => training),
    candidates,
    partial: partialResults(state, new Set(candidates.map(({ digest }) => digest)), n),
    front: pool === undefined ? new Set() : derived(pool, n, () => new Set(pool.front)),
    best: ties?.best ?? pool?.best ?? null,
    ties,
    metricCalls: Math.max(
      last(metricCallCounts)?.metric_calls ?? 0,
      last(candidates)?.metric_calls ?? 0,
      (live ? state.latest.now?.metric_calls : 0) ?? 0,
    ),
    metricCallCounts,
    tested: [...state.tested.values()].sort((a, b) => a.index - b.index),
    proposals,
    iterations: until(state.iterations),
    mutations: until(state.mutations),
    steers: [...state.steers.values()].filter(({ at }) => live || (at !== null && at <= n)).sort(byRequest),
    warnings: [...state.warnings.values()].filter(({ at }) => at === null || at <= n),
  };
}

/** Return the last comparison of the best candidates, unless the pool has changed since: the run was continued. */
function tiesOf({ latest: { ties_compared: ties }, pools }: State): TiesCompared | undefined {
  const compared = ties?.at ?? 0;
  return [...pools.values()].some(({ at }) => at > compared) ? undefined : ties;
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

/** As they were made. */
function byRequest(a: Steer, b: Steer): number {
  const [first, second] = [`${a.requested} ${a.key}`, `${b.requested} ${b.key}`];
  return first < second ? -1 : first > second ? 1 : 0;
}

function last<Item>(items: readonly Item[]): Item | undefined {
  return items[items.length - 1];
}

function asOf(proposal: Proposal, n: number, isOver: boolean): Proposal {
  if (proposal.decided === null) return isOver ? { ...proposal, outcome: "unfinished" } : { ...proposal, why: null };
  if (proposal.decided <= n) return proposal;
  return { ...proposal, decided: null, outcome: "pending", after: null, why: null, candidate: null, race: null };
}

function rowIds(state: State): (string | null)[] {
  const total = Math.max(0, ...[...state.rows.values()].map((rows) => rows.total));
  const ids = new Array<string | null>(total).fill(null);
  for (const { start, ids: some } of state.rows.values()) for (const [at, id] of some.entries()) ids[start + at] = id;
  return ids;
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
  return found.sort((a, b) => (a.digest < b.digest ? -1 : 1));
}
