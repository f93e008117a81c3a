/** Options that all transports share. */

import { anyOf, type OptionsOf, type ReadBy, SetupError, wholeNumber } from "./configuration.js";
import type { Log } from "./notices.js";
import { shown } from "./values.js";

/** What each is for, and how it is read. */
export const ENDPOINT_OPTIONS = {
  /** Examples that run at the same time; default 16. */
  concurrency: wholeNumber(1, 16),
  /** Examples that may wait beyond those running; default 10,000. */
  maxQueue: wholeNumber(0, 10_000),
  /** Examples in one call; default 1,000. */
  maxBatchSize: wholeNumber(1, 1000),
  /** Requests in one JSON-RPC array; default 100. */
  maxBatchEntries: wholeNumber(1, 100),
  /** Bytes of one request; default 64 MiB. */
  maxRequestBytes: wholeNumber(1, 64 * 2 ** 20),
  /** Bytes of one example's result as JSON; an example with a larger one is a `program_error`. Default 48 MiB. */
  maxResultBytes: wholeNumber(1, 48 * 2 ** 20),
  /** Seconds one example may run, null for no deadline; default 300. */
  exampleTimeoutS: (given: number | null | undefined): number | undefined => {
    if (given === null || given === undefined || given > 0) return given === undefined ? 300 : (given ?? undefined);
    throw new SetupError(`\`exampleTimeoutS\` must be above 0, or null for no deadline, not ${given}`);
  },
  /**
   * Whether a returned result counts although the last call of a model failed: for programs that answer outages on
   * purpose. Default false: such an example is an `infra_error`, and is tried again.
   */
  trustResults: anyOf(false),
  /** Hosts, as `host` or `host:port`, at which every call is one of a model, besides the calls that are known by their form. */
  modelHosts: (given: readonly string[] | undefined) => hostNames(given ?? []),
  /** Whether `list_examples` returns the rows, not only their ids; default true. */
  shareRows: anyOf(true),
  /**
   * A text that changes when the program does, for a program without a `version`. By default `serve` and `serveStdio`
   * use the SHA-256 of the file that this process was started with (not of its imports), and `handler` has none.
   */
  digest: (given: string | undefined) => {
    if (given === undefined || (typeof given === "string" && given !== "")) return given;
    throw new SetupError(`\`digest\` must be a text, and not empty, not ${shown(given)}`);
  },
  /** Receives what clients must not see; default `console.error`. */
  log: anyOf<Log>((message, error) => console.error(`evolverpc: ${message}`, error ?? "")),
};

export type EndpointOptions = OptionsOf<typeof ENDPOINT_OPTIONS>;
export type Settings = ReadBy<typeof ENDPOINT_OPTIONS>;

function hostNames(given: readonly string[]): ReadonlySet<string> {
  const isName = (host: unknown): boolean => typeof host === "string" && /^[^\s/@]+$/.test(host);
  if (!Array.isArray(given) || !given.every(isName)) {
    const odd = Array.isArray(given) ? given.find((host) => !isName(host)) : given;
    throw new SetupError(`\`modelHosts\` must be an array of hosts, such as "models.example:8000", not ${shown(odd)}`);
  }
  return new Set(given.map((host) => host.toLowerCase()));
}
