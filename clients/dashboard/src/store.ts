/** What the page knows: the run it shows, its events so far, and how it stands with the server. */

import { eventsOf, follow, openSession, type Status, showRun } from "./connection";
import type { Embedded } from "./embedded";
import type { PageEvent } from "./generated/events";
import { Observed } from "./observed";
import { EMPTY, reduce, type State } from "./state/reduce";

export interface Known {
  readonly run: string | null;
  readonly state: State;
  readonly status: Status;
}

export class Store extends Observed<Known> {
  private leave = () => {};

  constructor(data: Embedded | null) {
    super({ run: null, state: EMPTY, status: { kind: "connecting" } });
    if (data === null) void this.connect();
    else {
      const state = reduce(EMPTY, data.events);
      this.set({ state, run: state.latest.run?.run_id ?? null, status: { kind: "embedded" } });
    }
  }

  /** Show another run of the store. */
  show(run: string): void {
    this.leave();
    showRun(run);
    this.set({ run, state: EMPTY, status: { kind: "connecting" } });
    this.leave = follow(eventsOf(run), {
      events: (events: readonly PageEvent[]) => this.set({ state: reduce(this.known.state, events) }),
      reset: () => this.set({ state: EMPTY }),
      status: (status) => this.set({ status }),
    });
  }

  private async connect(): Promise<void> {
    const { run, refused } = await openSession();
    if (refused !== null) this.set({ run, status: { kind: "refused", message: refused } });
    else this.show(run);
  }
}
