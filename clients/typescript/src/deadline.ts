/** Work under a deadline and a cancellation, answered in time even where the work itself never ends. */

import type { Cancellation } from "./cancellation.js";
import { invokeProgram } from "./failure.js";
import { MAX_TIMER_MS } from "./timers.js";

/** How a piece of work ended. */
export type Ending<Value> =
  | { kind: "done"; value: Value }
  | { kind: "failed"; error: unknown }
  | { kind: "timeout" }
  | { kind: "cancelled" };

/**
 * Runs `work` until it ends, is cancelled or `timeoutS` seconds are over, whichever is first.
 *
 * The signal `work` is handed aborts in the last two cases; what it does after that changes nothing.
 */
export function within<Value>(
  work: (signal: AbortSignal) => Value | Promise<Value>,
  cancellation: Cancellation,
  timeoutS?: number,
): Promise<Ending<Value>> {
  if (cancellation.cancelled) return Promise.resolve({ kind: "cancelled" });
  return new Promise((resolve) => {
    const controller = new AbortController();
    const started = performance.now();
    const end = (ending: Ending<Value>): void => {
      clearTimeout(timer);
      forget();
      resolve(ending);
    };
    const expire = (): void => {
      end({ kind: "timeout" });
      controller.abort(new DOMException("The deadline is over", "TimeoutError"));
    };
    const forget = cancellation.onCancel(() => {
      end({ kind: "cancelled" });
      controller.abort(new DOMException("The call was cancelled", "AbortError"));
    });
    const timer = timeoutS === undefined ? undefined : setTimeout(expire, Math.min(timeoutS * 1000, MAX_TIMER_MS));
    // Work that blocks the event loop also blocks the timer, so the clock is asked as well.
    const late = (): boolean => timeoutS !== undefined && performance.now() - started > timeoutS * 1000;
    invokeProgram(() => work(controller.signal)).then(
      (value) => (late() ? expire() : end({ kind: "done", value })),
      (error: unknown) => (late() ? expire() : end({ kind: "failed", error })),
    );
  });
}
