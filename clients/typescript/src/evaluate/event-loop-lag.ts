/** Measure how long the event loop was blocked while an example ran. */

import { runAfter } from "../base/timers.js";

const SLOW_MS = 20;
const TICKS_PER_LIMIT = 100;
const SHORTEST_S = 0.02;
const LONGEST_S = 1;

/**
 * Measure for how many seconds the loop was blocked, from now on, during an example with this limit: by a timer that ticks every hundredth of it, between 0.02 s and 1 s.
 *
 * A tick that is over 20 ms late counts as blocked since the tick before it, so that `blockedS` errs on the high side.
 */
export function measureLag(limitS: number): { blockedS(): number; end(): void } {
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
  return { blockedS: () => blockedMs() / 1000, end: () => stop() };
}
