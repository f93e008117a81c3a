/** The optimizer as a child process: its events, and how it is stopped without losing results. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { SetupError } from "../base/configuration.js";
import type { Finished, RunEvent } from "../generated/optimize.js";

const EVENTS = 3;
const MOST_PRINTED = 20_000;
const PROCESS_ENDED =
  "the process ended before the run did. If the program ends it, set `isolated: true`: its examples then run in other processes";

/** The last line of the events. */
export interface Summary {
  event: "summary";
  run_id: string;
  status: Finished["status"];
  reason: string | null;
  spent_usd: number;
  active_seconds: number;
  output: string | null;
}

/** How the process ended; it `printed` the reason if the run was not begun, or if there is no `summary`. */
export interface Ended {
  /** Undefined if the run was not begun. */
  runId: string | undefined;
  summary: Summary | undefined;
  printed: string;
}

interface ProcessOptions {
  env: Record<string, string | undefined>;
  /** Receives each event; its rejection pauses the run. Without it the optimizer displays the run on the standard error. */
  onEvent: ((event: RunEvent) => unknown) | undefined;
  stop: StopRequests;
}

/** Run the optimizer to its end; a stop pauses the run, a second one ends it at once. Throws `SetupError` if it does not start. */
export async function runOptimizer(command: string, words: string[], options: ProcessOptions): Promise<Ended> {
  const { env, onEvent, stop } = options;
  const child = spawn(command, [...words, "--events-fd", String(EVENTS)], {
    env: { ...env, EVOLVERPC_COMMAND: "npx evolverpc" }, // by which it prints commands
    stdio: ["ignore", onEvent === undefined ? process.stderr.fd : "pipe", "pipe", "pipe"],
    detached: true, // so that Ctrl-C reaches it once, by this process
  });
  const closed = once(child, "close").catch((error: Error) => {
    throw new SetupError(`the optimizer ${command} cannot be started: ${error.message}`);
  });
  let runId: string | undefined;
  let printed = "";
  const print = (chunk: Buffer | string): void => {
    if (runId !== undefined && onEvent === undefined) process.stderr.write(chunk);
    else printed = (printed + chunk).slice(-MOST_PRINTED);
  };
  child.stdout?.on("data", print);
  child.stderr?.on("data", print);
  stop.each(() => child.kill("SIGINT"));
  const onExit = (): void => {
    child.kill("SIGTERM");
    console.error(`evolverpc: ${PROCESS_ENDED}`);
  };
  process.once("exit", onExit);
  let summary: Summary | undefined;
  try {
    for await (const line of createInterface({ input: child.stdio[EVENTS] as Readable })) {
      const event = JSON.parse(line) as RunEvent | Summary;
      if (event.event === "summary") {
        summary = event;
        continue;
      }
      if (event.event === "started") runId = event.run_id;
      await onEvent?.(event);
    }
  } catch (error) {
    child.kill("SIGINT");
    throw error;
  } finally {
    await closed;
    process.off("exit", onExit);
  }
  // What came before the run started would have broken the display, which is drawn in place.
  if (runId !== undefined && onEvent === undefined) process.stderr.write(printed);
  return { runId, summary, printed: printed.trim() };
}

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
