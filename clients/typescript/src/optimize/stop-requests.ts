/** Requests to stop: Ctrl-C, SIGTERM and an `AbortSignal`, while something runs that ends well by itself. */

const SIGNALS = ["SIGINT", "SIGTERM"] as const;

type Signal = (typeof SIGNALS)[number];

/** Takes the place of the process's own reaction to signals, from its creation until `end`. */
export class StopRequests {
  /** The signal of the operating system that was received, if any. */
  received: Signal | undefined;
  readonly #controller = new AbortController();
  readonly #abort: AbortSignal | undefined;
  #act: () => unknown = () => {};

  constructor(abort: AbortSignal | undefined) {
    abort?.throwIfAborted();
    this.#abort = abort;
    abort?.addEventListener("abort", this.#onAbort);
    for (const signal of SIGNALS) process.on(signal, this.#onSignal);
  }

  /** Aborted at the first request. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Call `act` at every request from now on, and at once if there was one. */
  each(act: () => unknown): void {
    this.#act = act;
    if (this.signal.aborted) act();
  }

  /** Restore the reaction to signals; a signal that was received then ends the process, unless the program handles it. */
  end(): void {
    this.#abort?.removeEventListener("abort", this.#onAbort);
    for (const signal of SIGNALS) process.off(signal, this.#onSignal);
    const { received } = this;
    if (received !== undefined && process.listenerCount(received) === 0) process.kill(process.pid, received);
  }

  readonly #onAbort = (): void => this.#request(this.#abort?.reason);

  readonly #onSignal = (signal: Signal): void => {
    this.received = signal;
    this.#request(new Error(`stopped by ${signal}`));
  };

  #request(reason: unknown): void {
    this.#controller.abort(reason);
    this.#act();
  }
}
