/** Options that all transports share. */

import { namesOf, SetupError, wholeNumber } from "../base/configuration.js";
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

/** Their names; each transport adds its own. */
export const ENDPOINT_OPTIONS = namesOf<EndpointOptions>({
  concurrency: 1,
  maxQueue: 1,
  maxBatchSize: 1,
  maxBatchEntries: 1,
  maxRequestBytes: 1,
  maxResultBytes: 1,
  exampleTimeoutS: 1,
  trustResults: 1,
  modelHosts: 1,
  shareRows: 1,
  digest: 1,
  log: 1,
});

/** The same with defaults filled in; `exampleTimeoutS` is undefined if there is no deadline. */
export interface Settings {
  concurrency: number;
  maxQueue: number;
  maxBatchSize: number;
  maxBatchEntries: number;
  maxRequestBytes: number;
  maxResultBytes: number;
  exampleTimeoutS: number | undefined;
  trustResults: boolean;
  modelHosts: ReadonlySet<string>;
  shareRows: boolean;
  digest: string | undefined;
  log: Log;
}

/** Fill in the defaults. Throws `SetupError` for an unusable limit. */
export function settingsOf(options: EndpointOptions): Settings {
  const { exampleTimeoutS = 300, digest } = options;
  if (exampleTimeoutS !== null && !(exampleTimeoutS > 0)) {
    throw new SetupError(`\`exampleTimeoutS\` must be above 0, or null for no deadline, not ${exampleTimeoutS}`);
  }
  if (digest !== undefined && (typeof digest !== "string" || digest === "")) {
    throw new SetupError(`\`digest\` must be a text, and not empty, not ${shown(digest)}`);
  }
  return {
    concurrency: wholeNumber("concurrency", options.concurrency ?? 16, 1),
    maxQueue: wholeNumber("maxQueue", options.maxQueue ?? 10_000, 0),
    maxBatchSize: wholeNumber("maxBatchSize", options.maxBatchSize ?? 1000, 1),
    maxBatchEntries: wholeNumber("maxBatchEntries", options.maxBatchEntries ?? 100, 1),
    maxRequestBytes: wholeNumber("maxRequestBytes", options.maxRequestBytes ?? 64 * 2 ** 20, 1),
    maxResultBytes: wholeNumber("maxResultBytes", options.maxResultBytes ?? 48 * 2 ** 20, 1),
    exampleTimeoutS: exampleTimeoutS ?? undefined,
    trustResults: options.trustResults ?? false,
    modelHosts: hostNames(options.modelHosts ?? []),
    shareRows: options.shareRows ?? true,
    digest,
    log: options.log ?? ((message, error) => console.error(`evolverpc: ${message}`, error ?? "")),
  };
}

function hostNames(given: readonly string[]): ReadonlySet<string> {
  const isName = (host: unknown): boolean => typeof host === "string" && /^[^\s/@]+$/.test(host);
  if (!Array.isArray(given) || !given.every(isName)) {
    const odd = Array.isArray(given) ? given.find((host) => !isName(host)) : given;
    throw new SetupError(`\`modelHosts\` must be an array of hosts, such as "models.example:8000", not ${shown(odd)}`);
  }
  return new Set(given.map((host) => host.toLowerCase()));
}
