/** Run work under a deadline and a cancellation; returns in time even if the work never ends. */

import type { Cancellation } from "../base/cancellation.js";
import { invokeProgram } from "../base/failure.js";
import { MAX_TIMER_MS } from "../base/timers.js";

export interface Deadline {
  /** Seconds left: 0 or less when the deadline has passed. */
  leftS(): number;
  /** After the deadline: what shows that the work itself took too long; undefined if it may have been delayed. */
  fault(): string | undefined;
}

/** How a piece of work ended. */
export type Outcome<Value> =
  | { kind: "done"; value: Value }
  | { kind: "failed"; error: unknown }
  | { kind: "timeout"; fault: string | undefined }
  | { kind: "cancelled" };

/**
 * Run `work` until it ends, is cancelled or reaches its deadline.
 *
 * The signal passed to `work` aborts in the last two cases; what the work does afterwards is ignored.
 */
export function runWithDeadline<Value>(
  work: (signal: AbortSignal) => Value | Promise<Value>,
  cancellation: Cancellation,
  deadline?: Deadline,
): Promise<Outcome<Value>> {
  if (cancellation.cancelled) return Promise.resolve({ kind: "cancelled" });
  return new Promise((resolve) => {
    const controller = new AbortController();
    const end = (ending: Outcome<Value>): void => {
      clearTimeout(timer);
      forget();
      resolve(ending);
    };
    const expire = (): void => {
      end({ kind: "timeout", fault: deadline?.fault() });
      controller.abort(new DOMException("The deadline is over", "TimeoutError"));
    };
    const forget = cancellation.onCancel(() => {
      end({ kind: "cancelled" });
      controller.abort(new DOMException("The call was cancelled", "AbortError"));
    });
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Work that blocks the event loop also blocks the timer, so the clock is read as well.
    const late = (): boolean => deadline !== undefined && deadline.leftS() <= 0;
    const wait = (): void => {
      if (late()) expire();
      else if (deadline !== undefined) {
        timer = setTimeout(wait, Math.min(Math.ceil(deadline.leftS() * 1000), MAX_TIMER_MS));
      }
    };
    wait();
    invokeProgram(() => work(controller.signal)).then(
      (value) => (late() ? expire() : end({ kind: "done", value })),
      (error: unknown) => (late() ? expire() : end({ kind: "failed", error })),
    );
  });
}
