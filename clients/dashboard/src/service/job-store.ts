/** What the page knows of one job: the events of its run, its own state, and how it stands with the service. */

import { type Followed, follow, type Status } from "../connection";
import type { PageEvent } from "../generated/events";
import { Observed } from "../observed";
import { SIGNED_OUT } from "../request";
import { EMPTY, reduce, type State } from "../state/reduce";
import type { Schema } from "./schema";

export type JobEvent = Schema<"JobEvent">;

export interface KnownJob {
  readonly state: State;
  readonly job: JobEvent | null;
  readonly status: Status;
}

export class JobStore extends Observed<KnownJob> {
  readonly leave: () => void;

  constructor(id: string) {
    super({ state: EMPTY, job: null, status: { kind: "connecting" } });
    this.leave = follow(addresses(id), {
      events: (events) => this.add(events),
      reset: () => this.set({ state: EMPTY }),
      status: (status) => {
        this.set({ status });
        if (status.kind === "refused") dispatchEvent(new Event(SIGNED_OUT));
      },
    });
  }

  private add(events: readonly (PageEvent | JobEvent)[]): void {
    const ofRun = events.filter((event): event is PageEvent => event.event !== "job");
    const job = events.findLast((event): event is JobEvent => event.event === "job");
    this.set({
      ...(ofRun.length > 0 ? { state: reduce(this.known.state, ofRun) } : {}),
      ...(job !== undefined ? { job } : {}),
    });
  }
}

function addresses(id: string): Followed {
  const path = `/job/${encodeURIComponent(id)}`;
  return {
    events: (last) => `${path}/stream${last ? `?after=${encodeURIComponent(last)}` : ""}`,
    status: path,
    refused: "You are signed out.",
  };
}
