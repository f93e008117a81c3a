/** Timers that do not keep the process alive, and the longest delay. */

/** The longest delay of a timer; a longer one would fire at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Call `action` once after so many seconds; returns a function that prevents it. */
export function runAfter(seconds: number, action: () => void): () => void {
  const timer: unknown = setTimeout(action, Math.min(seconds * 1000, MAX_TIMER_MS));
  // Node and Bun return objects with `unref`, other runtimes plain numbers.
  (timer as { unref?: () => void }).unref?.();
  return () => clearTimeout(timer as ReturnType<typeof setTimeout>);
}
