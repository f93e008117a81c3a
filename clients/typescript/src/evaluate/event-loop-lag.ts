/** Measure how long the event loop was blocked while examples ran. */

import { runAfter } from "../base/timers.js";

const SLOW_MS = 20;
const TICKS_PER_LIMIT = 100;
const SHORTEST_S = 0.02;
const LONGEST_S = 1;

/** A measurement from its start until now. */
export interface LagMeasurement {
  /** Seconds for which the event loop was blocked. */
  blockedS(): number;
  end(): void;
}

/**
 * A timer that ticks while a measurement is active, every hundredth of the shortest limit so far, between 0.02 s and 1 s.
 *
 * A tick that is over 20 ms late counts as blocked since the tick before it, so that `blockedS` errs on the high side.
 */
export class EventLoopLag {
  #everyS: number;
  #measurements = 0;
  #stop: () => void = () => {};
  #lastTick = 0;
  #blockedMs = 0;

  constructor(limitS: number) {
    this.#everyS = intervalS(limitS);
  }

  /** Measure during an example with this limit. */
  measure(limitS: number): LagMeasurement {
    const everyS = Math.min(this.#everyS, intervalS(limitS));
    const isRunning = this.#measurements++ > 0;
    if (isRunning && everyS < this.#everyS) {
      this.#blockedMs = this.#blocked();
      this.#stop();
    }
    if (!isRunning || everyS < this.#everyS) {
      this.#everyS = everyS;
      this.#tick();
    }
    const before = this.#blocked();
    return {
      blockedS: () => (this.#blocked() - before) / 1000,
      end: () => {
        if (--this.#measurements === 0) this.#stop();
      },
    };
  }

  #tick(): void {
    this.#lastTick = performance.now();
    this.#stop = runAfter(this.#everyS, () => {
      this.#blockedMs = this.#blocked();
      this.#tick();
    });
  }

  #blocked(): number {
    const since = performance.now() - this.#lastTick;
    return this.#blockedMs + (since > this.#everyS * 1000 + SLOW_MS ? since : 0);
  }
}

function intervalS(limitS: number): number {
  return Math.min(Math.max(limitS / TICKS_PER_LIMIT, SHORTEST_S), LONGEST_S);
}
