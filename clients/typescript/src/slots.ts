/** Room for work: so much at once, so much waiting in order, and no more. */

import type { Cancellation } from "./cancellation.js";
import { Overloaded } from "./errors.js";

export const RETRY_AFTER_S = 1;

export class Slots {
  readonly #room: number;
  #free: number;
  #admitted = 0;
  readonly #waiting = new Set<{ weight: number; enter: () => void }>();

  /** `capacity` at once; `maxQueue` more may wait. */
  constructor(
    readonly capacity: number,
    maxQueue: number,
  ) {
    this.#free = capacity;
    this.#room = capacity + maxQueue;
  }

  /**
   * Takes `count` in, to run or to wait; each is `dismiss`ed when it is over. Throws `Overloaded` where there is no room.
   *
   * More than all the room there is gets in when nothing else is here: it never could otherwise.
   */
  admit(count: number): void {
    if (this.#admitted > 0 && this.#admitted + count > this.#room) {
      throw new Overloaded("Overloaded: no room to queue more examples", { retry_after_s: RETRY_AFTER_S });
    }
    this.#admitted += count;
  }

  dismiss(count: number): void {
    this.#admitted -= count;
  }

  /** Waits its turn, first come first served; false where it was cancelled before. */
  enter(weight: number, cancellation: Cancellation): Promise<boolean> {
    if (cancellation.cancelled) return Promise.resolve(false);
    if (this.#waiting.size === 0 && this.#free >= weight) {
      this.#free -= weight;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const waiter = {
        weight,
        enter: () => {
          forget();
          resolve(true);
        },
      };
      const forget = cancellation.onCancel(() => {
        this.#waiting.delete(waiter);
        resolve(false);
        this.#next(); // the one behind may need less
      });
      this.#waiting.add(waiter);
    });
  }

  leave(weight: number): void {
    this.#free += weight;
    this.#next();
  }

  #next(): void {
    for (const waiter of this.#waiting) {
      if (waiter.weight > this.#free) return;
      this.#waiting.delete(waiter);
      this.#free -= waiter.weight;
      waiter.enter();
    }
  }
}
