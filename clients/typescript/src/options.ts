/** The limits that every way of serving shares. */

import type { Log } from "./jobs.js";
import { namesOf, SetupError, wholeNumber } from "./setup.js";
import { shown } from "./values.js";

export interface EndpointOptions {
  /** Examples at once; 16 when not given. */
  maxConcurrency?: number;
  /** Examples that may wait beyond those running; 10,000 when not given. */
  maxQueue?: number;
  /** Examples in one call; 1,000 when not given. */
  maxBatchSize?: number;
  /** Requests in one JSON-RPC array; 100 when not given. */
  maxBatchEntries?: number;
  /** Bytes of one request; 64 MiB when not given. */
  maxRequestBytes?: number;
  /** Bytes of one example's result as JSON; an example with a larger one is a `program_error`. 48 MiB when not given. */
  maxResultBytes?: number;
  /** Seconds one example may run, null for no deadline; 300 when not given. */
  exampleTimeoutS?: number | null;
  /** Whether `list_examples` gives the rows, not only their ids; true when not given. */
  shareRows?: boolean;
  /**
   * What changes when the program does, for a program that states no `version`. When not given, `serve` and `serveStdio`
   * take the SHA-256 of the file that this process was started with (not of what it imports), `handler` none.
   */
  digest?: string;
  /** Told what clients are not; `console.error` when not given. */
  log?: Log;
}

/** Their names; every way of serving adds its own. */
export const ENDPOINT_OPTIONS = namesOf<EndpointOptions>({
  maxConcurrency: 1,
  maxQueue: 1,
  maxBatchSize: 1,
  maxBatchEntries: 1,
  maxRequestBytes: 1,
  maxResultBytes: 1,
  exampleTimeoutS: 1,
  shareRows: 1,
  digest: 1,
  log: 1,
});

/** The same with nothing left open; `exampleTimeoutS` is undefined where there is no deadline. */
export interface Settings {
  maxConcurrency: number;
  maxQueue: number;
  maxBatchSize: number;
  maxBatchEntries: number;
  maxRequestBytes: number;
  maxResultBytes: number;
  exampleTimeoutS: number | undefined;
  shareRows: boolean;
  digest: string | undefined;
  log: Log;
}

/** Fills in the defaults; throws `SetupError` for a limit under which nothing could be done. */
export function settingsOf(options: EndpointOptions): Settings {
  const { exampleTimeoutS = 300, digest } = options;
  if (exampleTimeoutS !== null && !(exampleTimeoutS > 0)) {
    throw new SetupError(`\`exampleTimeoutS\` must be above 0, or null for no deadline, not ${exampleTimeoutS}`);
  }
  if (digest !== undefined && (typeof digest !== "string" || digest === "")) {
    throw new SetupError(`\`digest\` must be a text, and not empty, not ${shown(digest)}`);
  }
  return {
    maxConcurrency: wholeNumber("maxConcurrency", options.maxConcurrency ?? 16, 1),
    maxQueue: wholeNumber("maxQueue", options.maxQueue ?? 10_000, 0),
    maxBatchSize: wholeNumber("maxBatchSize", options.maxBatchSize ?? 1000, 1),
    maxBatchEntries: wholeNumber("maxBatchEntries", options.maxBatchEntries ?? 100, 1),
    maxRequestBytes: wholeNumber("maxRequestBytes", options.maxRequestBytes ?? 64 * 2 ** 20, 1),
    maxResultBytes: wholeNumber("maxResultBytes", options.maxResultBytes ?? 48 * 2 ** 20, 1),
    exampleTimeoutS: exampleTimeoutS ?? undefined,
    shareRows: options.shareRows ?? true,
    digest,
    log: options.log ?? ((message, error) => console.error(`evolverpc: ${message}`, error ?? "")),
  };
}
