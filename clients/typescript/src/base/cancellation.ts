/** A cancellation token for a call and all its examples. */

/** Lighter than an `AbortSignal`: runtimes warn about its eleventh listener. */
export class Cancellation {
  #cancelled = false;
  readonly #listeners = new Set<() => void>();

  get cancelled(): boolean {
    return this.#cancelled;
  }

  cancel(): void {
    if (this.#cancelled) return;
    this.#cancelled = true;
    for (const listener of this.#listeners) listener();
    this.#listeners.clear();
  }

  /** Call `listener` on cancellation, immediately if it has happened; returns a function that removes the listener. */
  onCancel(listener: () => void): () => void {
    if (this.#cancelled) listener();
    else this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A cancellation that follows an abort signal. */
  static of(signal: AbortSignal | undefined): Cancellation {
    const cancellation = new Cancellation();
    if (signal?.aborted) cancellation.cancel();
    else signal?.addEventListener("abort", () => cancellation.cancel(), { once: true });
    return cancellation;
  }
}
