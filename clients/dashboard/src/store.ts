/** What the page knows: the run it shows, its events so far, and how it stands with the server. */

import { eventsOf, type Followed, follow, openSession, type Status, showRun } from "./connection";
import type { Embedded } from "./embedded";
import { Observed } from "./observed";
import { EMPTY, reduce, type State } from "./state/reduce";

export interface Known {
  readonly run: string | null;
  readonly state: State;
  readonly status: Status;
}

/** The events of what is followed, one after the other. */
export class EventStore extends Observed<Known> {
  leave = () => {};

  constructor() {
    super({ run: null, state: EMPTY, status: { kind: "connecting" } });
  }

  follow(followed: Followed, run: string | null = null): void {
    this.leave();
    this.set({ run, state: EMPTY, status: { kind: "connecting" } });
    this.leave = follow(followed, {
      events: (events) => this.set({ state: reduce(this.known.state, events) }),
      reset: () => this.set({ state: EMPTY }),
      status: (status) => this.set({ status }),
    });
  }
}

/** The events of a run of the store whose page this is, or those inside the page. */
export class Store extends EventStore {
  constructor(data: Embedded | null) {
    super();
    if (data === null) void this.connect();
    else {
      const state = reduce(EMPTY, data.events);
      this.set({ state, run: state.latest.run?.run_id ?? null, status: { kind: "embedded" } });
    }
  }

  /** Show another run of the store. */
  show(run: string): void {
    showRun(run);
    this.follow(eventsOf(run), run);
  }

  private async connect(): Promise<void> {
    const { run, refused } = await openSession();
    if (refused !== null) this.set({ run, status: { kind: "refused", message: refused } });
    else this.show(run);
  }
}
