/** Word that a call is to stop, for as many parts of it as there are examples. */

/** Lighter than an `AbortSignal`, on which runtimes warn of the eleventh listener. */
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

  /** Calls `listener` when it happens, at once where it has; returns how to stop listening. */
  onCancel(listener: () => void): () => void {
    if (this.#cancelled) listener();
    else this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The cancellation that an abort signal brings about. */
  static of(signal: AbortSignal | undefined): Cancellation {
    const cancellation = new Cancellation();
    if (signal?.aborted) cancellation.cancel();
    else signal?.addEventListener("abort", () => cancellation.cancel(), { once: true });
    return cancellation;
  }
}
