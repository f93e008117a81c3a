/** Run work under a deadline and a cancellation; returns in time even if the work never ends. */

import type { Cancellation } from "../base/cancellation.js";
import { invokeProgram } from "../base/failure.js";
import { MAX_TIMER_MS, runAfter } from "../base/runtime.js";

/** Seconds that work may run; `alone`: whether no other work runs in its process, so that none can delay it. */
interface Limit {
  seconds: number;
  alone: boolean;
}

/** How a piece of work ended; `fault`: what shows that it took too long itself, undefined if others may have delayed it. */
export type Outcome<Value> =
  | { kind: "done"; value: Value }
  | { kind: "failed"; error: unknown }
  | { kind: "timeout"; fault: string | undefined }
  | { kind: "cancelled" };

/** The share of a limit for which the event loop may be blocked before its work counts as delayed. */
const MAX_BLOCKED_SHARE = 0.1;
const ALONE = "while no other example ran in its process";
const RESPONSIVE = "while its process was responsive";

const SLOW_MS = 20;
const TICKS_PER_LIMIT = 100;
const SHORTEST_S = 0.02;
const LONGEST_S = 1;

/**
 * Run `work` until it ends, is cancelled or reaches its limit; time for which others blocked the event loop is added to it.
 *
 * The signal passed to `work` aborts in the last two cases; what the work does afterwards is ignored.
 */
export function runWithDeadline<Value>(
  work: (signal: AbortSignal) => Value | Promise<Value>,
  cancellation: Cancellation,
  limit?: Limit,
): Promise<Outcome<Value>> {
  if (cancellation.cancelled) return Promise.resolve({ kind: "cancelled" });
  return new Promise((resolve) => {
    const controller = new AbortController();
    const clock = limit && startClock(limit);
    const end = (ending: Outcome<Value>): void => {
      clearTimeout(timer);
      clock?.stop();
      forget();
      resolve(ending);
    };
    const expire = (): void => {
      end({ kind: "timeout", fault: clock?.fault() });
      controller.abort(new DOMException("The deadline is over", "TimeoutError"));
    };
    const forget = cancellation.onCancel(() => {
      end({ kind: "cancelled" });
      controller.abort(new DOMException("The call was cancelled", "AbortError"));
    });
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Work that blocks the event loop also blocks the timer, so the clock is read as well.
    const late = (): boolean => clock !== undefined && clock.leftS() <= 0;
    const wait = (): void => {
      if (late()) expire();
      else if (clock !== undefined) timer = setTimeout(wait, Math.min(Math.ceil(clock.leftS() * 1000), MAX_TIMER_MS));
    };
    wait();
    invokeProgram(() => work(controller.signal)).then(
      (value) => (late() ? expire() : end({ kind: "done", value })),
      (error: unknown) => (late() ? expire() : end({ kind: "failed", error })),
    );
  });
}

/** Start to measure what is left of a limit, and who is at fault when nothing is. */
function startClock({ seconds, alone }: Limit): { leftS(): number; fault(): string | undefined; stop(): void } {
  const started = performance.now();
  const { blockedS, stop } = measureBlocked(seconds);
  const isDelayed = (): boolean => !alone && blockedS() > MAX_BLOCKED_SHARE * seconds;
  return {
    leftS: () => seconds + (alone || isDelayed() ? 0 : blockedS()) - (performance.now() - started) / 1000,
    fault: () => (alone ? ALONE : isDelayed() ? undefined : RESPONSIVE),
    stop,
  };
}

/**
 * Measure for how many seconds the event loop was blocked from now on, by a timer that ticks every hundredth of a limit,
 * between 0.02 s and 1 s.
 *
 * A tick that is over 20 ms late counts as blocked since the tick before it, so that `blockedS` errs on the high side.
 */
function measureBlocked(limitS: number): { blockedS(): number; stop(): void } {
  const everyS = Math.min(Math.max(limitS / TICKS_PER_LIMIT, SHORTEST_S), LONGEST_S);
  let lastTick = performance.now();
  let counted = 0;
  const blockedMs = (): number => {
    const since = performance.now() - lastTick;
    return counted + (since > everyS * 1000 + SLOW_MS ? since : 0);
  };
  const tick = (): void => {
    counted = blockedMs();
    lastTick = performance.now();
    stop = runAfter(everyS, tick);
  };
  let stop = runAfter(everyS, tick);
  return { blockedS: () => blockedMs() / 1000, stop: () => stop() };
}
