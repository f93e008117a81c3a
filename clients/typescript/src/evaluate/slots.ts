/** Admission control: a bounded number of running examples and a bounded queue in order of arrival. */

import type { Cancellation } from "../base/cancellation.js";
import { Overloaded } from "../generated/errors.js";

export const RETRY_AFTER_S = 1;

export class Slots {
  readonly #room: number;
  #free: number;
  #admitted = 0;
  readonly #waiting = new Set<{ weight: number; enter: () => void }>();

  /** `capacity` run at once; `maxQueue` more may wait. */
  constructor(
    readonly capacity: number,
    maxQueue: number,
  ) {
    this.#free = capacity;
    this.#room = capacity + maxQueue;
  }

  /**
   * Admit `count` examples, to run or to wait; each is `release`d when it ends. Throws `Overloaded` if there is no room.
   *
   * A batch larger than all the room is admitted if nothing else is: otherwise it never could be.
   */
  admit(count: number): void {
    if (this.#admitted > 0 && this.#admitted + count > this.#room) {
      throw new Overloaded("Overloaded: no room to queue more examples", { retry_after_s: RETRY_AFTER_S });
    }
    this.#admitted += count;
  }

  release(count: number): void {
    this.#admitted -= count;
  }

  /** Wait for free capacity in order of arrival; false if cancelled while waiting. */
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
        this.#next(); // the next one may need less
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
