/** Options that all transports share. */

import { type ReadBy, type Readers, SetupError, wholeNumber } from "../base/configuration.js";
import type { Log } from "../base/notices.js";
import { shown } from "../base/values.js";

export interface EndpointOptions {
  /** Examples that run at the same time; default 16. */
  concurrency?: number;
  /** Examples that may wait beyond those running; default 10,000. */
  maxQueue?: number;
  /** Examples in one call; default 1,000. */
  maxBatchSize?: number;
  /** Requests in one JSON-RPC array; default 100. */
  maxBatchEntries?: number;
  /** Bytes of one request; default 64 MiB. */
  maxRequestBytes?: number;
  /** Bytes of one example's result as JSON; an example with a larger one is a `program_error`. Default 48 MiB. */
  maxResultBytes?: number;
  /** Seconds one example may run, null for no deadline; default 300. */
  exampleTimeoutS?: number | null;
  /**
   * Whether a returned result counts although the last call of a model failed: for programs that answer outages on
   * purpose. Default false: such an example is an `infra_error`, and is tried again.
   */
  trustResults?: boolean;
  /** Hosts, as `host` or `host:port`, at which every call is one of a model, besides the calls that are known by their form. */
  modelHosts?: readonly string[];
  /** Whether `list_examples` returns the rows, not only their ids; default true. */
  shareRows?: boolean;
  /**
   * A text that changes when the program does, for a program without a `version`. By default `serve` and `serveStdio`
   * use the SHA-256 of the file that this process was started with (not of its imports), and `handler` has none.
   */
  digest?: string;
  /** Receives what clients must not see; default `console.error`. */
  log?: Log;
}

/** How they are read; `exampleTimeoutS` is undefined if there is no deadline. */
export const ENDPOINT_OPTIONS = {
  concurrency: wholeNumber(1, 16),
  maxQueue: wholeNumber(0, 10_000),
  maxBatchSize: wholeNumber(1, 1000),
  maxBatchEntries: wholeNumber(1, 100),
  maxRequestBytes: wholeNumber(1, 64 * 2 ** 20),
  maxResultBytes: wholeNumber(1, 48 * 2 ** 20),
  exampleTimeoutS: (given: number | null | undefined) => {
    if (given === null || given === undefined || given > 0) return given === undefined ? 300 : (given ?? undefined);
    throw new SetupError(`\`exampleTimeoutS\` must be above 0, or null for no deadline, not ${given}`);
  },
  trustResults: (given: boolean | undefined) => given ?? false,
  modelHosts: (given: readonly string[] | undefined) => hostNames(given ?? []),
  shareRows: (given: boolean | undefined) => given ?? true,
  digest: (given: string | undefined) => {
    if (given === undefined || (typeof given === "string" && given !== "")) return given;
    throw new SetupError(`\`digest\` must be a text, and not empty, not ${shown(given)}`);
  },
  log: (given: Log | undefined): Log =>
    given ?? ((message, error) => console.error(`evolverpc: ${message}`, error ?? "")),
} satisfies Readers<EndpointOptions>;

export type Settings = ReadBy<typeof ENDPOINT_OPTIONS>;

function hostNames(given: readonly string[]): ReadonlySet<string> {
  const isName = (host: unknown): boolean => typeof host === "string" && /^[^\s/@]+$/.test(host);
  if (!Array.isArray(given) || !given.every(isName)) {
    const odd = Array.isArray(given) ? given.find((host) => !isName(host)) : given;
    throw new SetupError(`\`modelHosts\` must be an array of hosts, such as "models.example:8000", not ${shown(odd)}`);
  }
  return new Set(given.map((host) => host.toLowerCase()));
}
