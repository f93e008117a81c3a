/** What the page knows: the run it shows, its events so far, and how it stands with the server. */

import { useEffect, useState } from "preact/hooks";
import { follow, openSession, type RunSummary, type Status } from "./connection";
import type { Embedded } from "./embedded";
import type { PageEvent } from "./generated/events";
import { EMPTY, reduce, type State } from "./state/reduce";

export interface Known {
  readonly run: string | null;
  readonly runs: readonly RunSummary[];
  readonly state: State;
  readonly status: Status;
}

export class Store {
  known: Known = { run: null, runs: [], state: EMPTY, status: { kind: "connecting" } };
  private readonly listeners = new Set<() => void>();
  private leave = () => {};

  constructor(data: Embedded | null) {
    if (data === null) void this.connect();
    else {
      const state = reduce(EMPTY, data.events);
      this.set({ state, run: state.latest.run?.run_id ?? null, status: { kind: "embedded" } });
    }
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Show another run of the store. */
  show(run: string): void {
    this.leave();
    this.set({ run, state: EMPTY, status: { kind: "connecting" } });
    this.leave = follow(run, {
      events: (events: readonly PageEvent[]) => this.set({ state: reduce(this.known.state, events) }),
      reset: () => this.set({ state: EMPTY }),
      status: (status) => this.set({ status }),
    });
  }

  private async connect(): Promise<void> {
    const refused = await openSession();
    if (refused !== null) return this.set({ status: { kind: "refused", message: refused } });
    this.set({ run: "last" });
    this.show("last");
  }

  private set(changed: Partial<Known>): void {
    this.known = { ...this.known, ...changed };
    for (const listener of this.listeners) listener();
  }
}

export function useKnown(store: Store): Known {
  const [known, setKnown] = useState(store.known);
  useEffect(() => {
    setKnown(store.known);
    return store.subscribe(() => setKnown(store.known));
  }, [store]);
  return known;
}
