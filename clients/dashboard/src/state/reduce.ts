/** The state of a run by its events, in the order of the server: of two with the same key the later one counts. */

import type {
  Budget,
  Candidate as CandidateEvent,
  Mutation,
  NoProposal,
  PageEvent,
  Proposal,
  Results,
  Rows,
  Steer,
  Steered,
  Tested,
  Warned,
} from "../generated/events";

/** Kinds of which only the latest event counts. */
const REPLACED = [
  "run",
  "failures",
  "spending",
  "sealed",
  "ties_compared",
  "certificate",
  "summary",
  "now",
  "notices",
  "position",
  "store",
] as const;
type ReplacedKind = (typeof REPLACED)[number];
type Replaced = Extract<PageEvent, { event: ReplacedKind }>;
export type Latest = { readonly [Kind in ReplacedKind]?: Extract<PageEvent, { event: Kind }> };

/** An event with its place in the journal. */
export type Placed<Event> = Event & { readonly at: number };

/** `scores`: by place of the validation row, NaN for a missing one. */
export interface Candidate extends Omit<CandidateEvent, "scores"> {
  readonly scores: Float64Array;
}

/** The pool from a place on: the candidates on the Pareto front, and the best one. */
export type Pool = Placed<Pick<Steered, "front" | "best">>;

export const STATUSES = ["", "ok", "program_error", "timeout", "infra_error", "cancelled", "rollout"] as const;

/** Results of one candidate by place of the row; `numbers` is -1 for a missing one. `statuses`: of `STATUSES`. */
export interface RowResults {
  readonly scores: Float64Array;
  readonly numbers: Int32Array;
  readonly statuses: Uint8Array;
}

export interface State {
  readonly latest: Latest;
  readonly rows: ReadonlyMap<number, Rows>;
  readonly candidates: ReadonlyMap<number, Candidate>;
  readonly proposals: ReadonlyMap<string, Proposal>;
  readonly results: ReadonlyMap<string, RowResults>;
  readonly pools: ReadonlyMap<number, Pool>;
  readonly metricCalls: ReadonlyMap<number, Placed<Budget>>;
  readonly iterations: ReadonlyMap<number, Placed<NoProposal>>;
  readonly mutations: ReadonlyMap<number, Mutation>;
  readonly steers: ReadonlyMap<string, Steer>;
  readonly warnings: ReadonlyMap<string, Warned>;
  readonly tested: ReadonlyMap<number, Tested>;
}

export const EMPTY: State = {
  latest: {},
  rows: new Map(),
  candidates: new Map(),
  proposals: new Map(),
  results: new Map(),
  pools: new Map(),
  metricCalls: new Map(),
  iterations: new Map(),
  mutations: new Map(),
  steers: new Map(),
  warnings: new Map(),
  tested: new Map(),
};

/** Return the state with these events; the given one stays as it is. */
export function reduce(state: State, events: readonly PageEvent[]): State {
  const draft = new Draft(state);
  for (const event of events) draft.add(event);
  return draft.state();
}

type Name = Exclude<keyof State, "latest">;

/** A state in the making, which copies a collection before it changes it first. */
class Draft {
  private latest: Latest;
  private readonly changed: { [Key in Name]?: Map<unknown, unknown> } = {};
  private readonly changedResults = new Set<string>();

  constructor(private readonly before: State) {
    this.latest = before.latest;
  }

  state(): State {
    return { ...this.before, ...this.changed, latest: this.latest } as State;
  }

  add(event: PageEvent): void {
    switch (event.event) {
      case "candidate":
        this.keep("candidates", event.index, { ...event, scores: numbers(event.scores) });
        this.keepPool(event);
        break;
      case "results":
        this.addResults(event);
        break;
      case "rows":
        this.keep("rows", event.start, event);
        break;
      case "proposal":
        this.keep("proposals", event.key, event);
        break;
      case "steered":
        this.keepPool(event);
        break;
      case "budget":
        this.keepPlaced("metricCalls", event);
        break;
      case "no_proposal":
        this.keepPlaced("iterations", event);
        break;
      case "mutation":
        this.keep("mutations", event.at, event);
        break;
      case "steer":
        this.keep("steers", event.key, event);
        break;
      case "warning":
        this.keep("warnings", event.message, event);
        break;
      case "tested":
        this.keep("tested", event.index, event);
        break;
      default:
        this.replace(event);
    }
  }

  private replace(event: Replaced): void {
    if (REPLACED.includes(event.event)) this.latest = { ...this.latest, [event.event]: event }; // or of a newer server
  }

  private keep(name: Name, key: string | number, fact: object): void {
    this.collection(name).set(key, fact);
  }

  private keepPool({ at, front, best }: Pick<Steered, "at" | "front" | "best">): void {
    this.keep("pools", at ?? 0, { at: at ?? 0, front, best });
  }

  private keepPlaced(name: Name, event: { readonly at: number | null }): void {
    const at = event.at ?? 0;
    this.keep(name, at, { ...event, at });
  }

  private collection(name: Name): Map<unknown, unknown> {
    const changed = this.changed[name] ?? new Map<unknown, unknown>(this.before[name]);
    this.changed[name] = changed;
    return changed;
  }

  private addResults(event: Results): void {
    for (const [at, digest] of event.candidates.entries()) {
      const row = event.rows[at] as number;
      const found = this.resultsOf(digest, row);
      found.scores[row] = event.scores[at] ?? Number.NaN;
      found.numbers[row] = event.numbers[at] as number;
      found.statuses[row] = Math.max(0, STATUSES.indexOf(event.statuses[at] as (typeof STATUSES)[number]));
    }
  }

  /** The results of a candidate, copied once, with room for this row. */
  private resultsOf(digest: string, row: number): RowResults {
    const results = this.collection("results") as Map<string, RowResults>;
    const known = results.get(digest);
    const length = known === undefined ? 64 : known.numbers.length;
    if (known !== undefined && row < length && this.changedResults.has(digest)) return known;
    const copy = emptyResults(row < length ? length : Math.max(row + 1, 2 * length));
    if (known !== undefined) {
      copy.scores.set(known.scores);
      copy.numbers.set(known.numbers);
      copy.statuses.set(known.statuses);
    }
    results.set(digest, copy);
    this.changedResults.add(digest);
    return copy;
  }
}

function emptyResults(length: number): RowResults {
  return {
    scores: new Float64Array(length).fill(Number.NaN),
    numbers: new Int32Array(length).fill(-1),
    statuses: new Uint8Array(length),
  };
}

function numbers(scores: readonly (number | null)[]): Float64Array {
  const found = new Float64Array(scores.length);
  for (let row = 0; row < scores.length; row += 1) found[row] = scores[row] ?? Number.NaN;
  return found;
}
