/** Whether the event loop is free: how long, of the time that examples run, it kept timers from their turn. */

import { afterwards } from "./timers.js";

const SLOW_MS = 20;
const BEATS_PER_LIMIT = 100;
const SHORTEST_S = 0.02;
const LONGEST_S = 1;

/** Measures from the moment it was asked for. */
export interface Watch {
  /** Seconds in which the event loop was not free. */
  heldS(): number;
  end(): void;
}

/**
 * A timer that beats while anything is watched, every hundredth of `limitS`, between 0.02 s and 1 s.
 *
 * A beat that is over 20 ms late counts as held from the beat before it on, so that `heldS` errs towards too much.
 */
export class Pulse {
  readonly #everyS: number;
  #watched = 0;
  #stop: () => void = () => {};
  #seen = 0;
  #heldMs = 0;

  constructor(limitS: number) {
    this.#everyS = Math.min(Math.max(limitS / BEATS_PER_LIMIT, SHORTEST_S), LONGEST_S);
  }

  watch(): Watch {
    if (this.#watched++ === 0) this.#beat();
    const before = this.#held();
    return {
      heldS: () => (this.#held() - before) / 1000,
      end: () => {
        if (--this.#watched === 0) this.#stop();
      },
    };
  }

  #beat(): void {
    this.#seen = performance.now();
    this.#stop = afterwards(this.#everyS, () => {
      this.#heldMs = this.#held();
      this.#beat();
    });
  }

  #held(): number {
    const since = performance.now() - this.#seen;
    return this.#heldMs + (since > this.#everyS * 1000 + SLOW_MS ? since : 0);
  }
}
