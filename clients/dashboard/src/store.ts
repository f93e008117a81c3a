/** What the page knows: the run it shows, its events so far, and how it stands with the server. */

import { useEffect, useState } from "preact/hooks";
import { follow, openSession, type Status, showRun } from "./connection";
import type { Embedded } from "./embedded";
import type { PageEvent } from "./generated/events";
import { EMPTY, reduce, type State } from "./state/reduce";

export interface Known {
  readonly run: string | null;
  readonly state: State;
  readonly status: Status;
  /** How often everything came again. */
  readonly resets: number;
}

export class Store {
  known: Known = { run: null, state: EMPTY, status: { kind: "connecting" }, resets: 0 };
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
    showRun(run);
    this.set({ run, state: EMPTY, status: { kind: "connecting" } });
    this.leave = follow(run, {
      events: (events: readonly PageEvent[]) => this.set({ state: reduce(this.known.state, events) }),
      reset: () => this.set({ state: EMPTY, resets: this.known.resets + 1 }),
      status: (status) => this.set({ status }),
    });
  }

  private async connect(): Promise<void> {
    const { run, refused } = await openSession();
    if (refused !== null) this.set({ run, status: { kind: "refused", message: refused } });
    else this.show(run);
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
