/** Timers: how long they can be, and such that no process stays alive for. */

/** The longest delay a timer keeps; a longer one would fire at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Calls `action` once after so many seconds; returns how to prevent it. */
export function afterwards(seconds: number, action: () => void): () => void {
  const timer: unknown = setTimeout(action, Math.min(seconds * 1000, MAX_TIMER_MS));
  // Node and Bun hand out objects that can be told so, other runtimes plain numbers.
  (timer as { unref?: () => void }).unref?.();
  return () => clearTimeout(timer as ReturnType<typeof setTimeout>);
}
