/** Trajectories that stay at the server: a reference goes out in place of each. */

import { wholeNumber } from "../base/configuration.js";
import type { JsonValue } from "../base/json.js";
import { TrajectoryExpired } from "../generated/errors.js";
import type { ExampleResult, Trace } from "../generated/types.js";
import { sizeOf } from "./calls.js";

/** What it is for, and how it is read. */
export const TRACE_OPTIONS = {
  /** Bytes of all stored trajectories; default 256 MiB. */
  maxTraceBytes: wholeNumber(0, 256 * 2 ** 20),
};

/** Approximate memory overhead of one entry. */
const ENTRY_BYTES = 256;

interface Group {
  readonly texts: Map<string, string>;
  bytes: number;
}

/** Stores trajectories by group (a minibatch). Whole groups are evicted, the least recently used first. */
export class TrajectoryStore {
  readonly #groups = new Map<string, Group>();
  readonly #groupOf = new Map<string, string>();
  #bytes = 0;

  constructor(private readonly maxBytes: number) {}

  /**
   * Replace the trajectory by a reference, unless its group would exceed the limit.
   *
   * `data`: of the example, if the client cannot have it; kept with the trajectory.
   */
  outgoing(result: ExampleResult, group: string, instanceId: string, data?: JsonValue): ExampleResult {
    const { trajectory = null, ...rest } = result;
    if (this.maxBytes === 0) return result;
    if (trajectory === null && data === undefined) return result;
    const ref = this.#keep(group, JSON.stringify({ trajectory, data }), instanceId);
    if (ref === undefined) return result;
    const isLong = typeof trajectory === "object" && trajectory !== null;
    const length = isLong ? { trajectory_length: Object.keys(trajectory).length } : {};
    return { ...rest, trajectory_ref: ref, ...length };
  }

  /** Return what is kept for each reference. Throws `TrajectoryExpired` with those that were evicted. */
  traces(refs: readonly string[]): Trace[] {
    const lost = refs.filter((ref) => !this.#groupOf.has(ref));
    if (lost.length > 0) throw new TrajectoryExpired(undefined, { refs: lost });
    return refs.map((ref) => this.#read(ref));
  }

  /** Replace references by trajectories. Throws as `traces`. */
  inline(results: readonly ExampleResult[]): ExampleResult[] {
    const traces = this.traces(results.flatMap(({ trajectory_ref }) => trajectory_ref ?? []));
    return results.map((result) => {
      const { trajectory_ref: ref, ...rest } = result;
      return ref === undefined || ref === null ? result : { ...rest, trajectory: traces.shift()?.trajectory };
    });
  }

  #keep(name: string, text: string, instanceId: string): string | undefined {
    const size = sizeOf(text) + ENTRY_BYTES;
    const group = this.#groups.get(name) ?? { texts: new Map(), bytes: 0 };
    if (group.bytes + size > this.maxBytes) return undefined;
    this.#touch(name, group);
    const ref = `${instanceId}/${crypto.randomUUID()}`;
    group.texts.set(ref, text);
    group.bytes += size;
    this.#groupOf.set(ref, name);
    this.#bytes += size;
    for (const [oldest, { bytes, texts }] of this.#groups) {
      if (this.#bytes <= this.maxBytes) break;
      this.#groups.delete(oldest);
      this.#bytes -= bytes;
      for (const lost of texts.keys()) this.#groupOf.delete(lost);
    }
    return ref;
  }

  #read(ref: string): Trace {
    const name = this.#groupOf.get(ref) as string;
    const group = this.#groups.get(name) as Group;
    this.#touch(name, group);
    return JSON.parse(group.texts.get(ref) as string) as Trace;
  }

  #touch(name: string, group: Group): void {
    this.#groups.delete(name);
    this.#groups.set(name, group);
  }
}
